"""Seconds that operators take, estimated from their shapes alone: equal on every run, and nothing has to run.

``operations / OPERATIONS + bytes / BYTES + CALL``: floating-point operations by PyTorch's own formulas
(`torch.utils.flop_counter`), bytes read and written. Only ratios matter to a schedule.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from .step_graph import operators

OPERATIONS = 4e10
"""Floating-point operations a second, of matrix products and convolutions."""
BYTES = 5e9
"""Bytes a second of operators that go through their arguments once."""
CALL = 4e-6
"""Seconds of a call."""


def seconds(module: GraphModule) -> list[float]:
    """Return the seconds of each operator of a traced graph module, in the order of `operators`."""
    return [_seconds(node) for node in operators(module)]


def _seconds(node: Node) -> float:
    def value(argument: Any) -> Any:
        return argument.meta["val"] if isinstance(argument, Node) else argument

    args, kwargs = pytree.tree_map(value, (node.args, node.kwargs))
    result = node.meta.get("val")
    if node.target.is_view:
        return CALL
    count = sum(
        leaf.numel() * leaf.element_size()
        for leaf in pytree.tree_leaves((args, kwargs, result))
        if isinstance(leaf, torch.Tensor)
    )
    formula = flop_registry.get(node.target.overloadpacket)
    work = formula(*args, **kwargs, out_val=result) if formula is not None else 0
    return float(work / OPERATIONS + count / BYTES + CALL)
