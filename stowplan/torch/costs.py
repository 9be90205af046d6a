"""Seconds that operators take, estimated from their shapes alone: equal on every run, and nothing has to run.

``operations / OPERATIONS + bytes / rate + CALL``: floating-point operations by PyTorch's own formulas
(`torch.utils.flop_counter`), bytes read and written at a rate by the kind of operator. The rates are those of one core
in 2026; only their ratios matter to a schedule.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from .step_graph import operators
from .tracing import is_random

OPERATIONS = 1e11
"""Floating-point operations a second, of matrix products and convolutions."""
BYTES = 2e10
"""Bytes a second of operators that go through their arguments once."""
SLOW_BYTES = 4e9
"""Bytes a second of operators that compute more for each element: exponentials, normalization, pooling."""
DRAWN_BYTES = 1e9
"""Bytes a second of random numbers."""
CALL = 6e-6
"""Seconds of a call."""

SLOW = (
    "softmax",
    "tanh",
    "gelu",
    "silu",
    "exp",
    "sigmoid",
    "norm",
    "pool",
    "loss",
    "attention",
    "erf",
    "log",
)
"""Parts of the names of slow operators."""


def seconds(module: GraphModule) -> list[float]:
    """Return the seconds of each operator of a traced graph module, in the order of `operators`."""
    return [_seconds(node) for node in operators(module)]


def _seconds(node: Node) -> float:
    def value(argument: Any) -> Any:
        return argument.meta["val"] if isinstance(argument, Node) else argument

    args, kwargs = pytree.tree_map(value, (node.args, node.kwargs))
    result = node.meta.get("val")
    if node.target.is_view or node.target is torch.ops.aten._unsafe_view.default:
        return CALL
    count = sum(
        leaf.numel() * leaf.element_size()
        for leaf in pytree.tree_leaves((args, kwargs, result))
        if isinstance(leaf, torch.Tensor)
    )
    formula = flop_registry.get(node.target.overloadpacket)
    work = formula(*args, **kwargs, out_val=result) if formula is not None else 0
    return float(work / OPERATIONS + count / _rate(node) + CALL)


def _rate(node: Node) -> float:
    if is_random(node):
        return DRAWN_BYTES
    name = node.target._schema.name
    return SLOW_BYTES if any(part in name for part in SLOW) else BYTES
