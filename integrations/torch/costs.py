"""Seconds that operators take, estimated from their shapes alone: equal on every run, and nothing has to run.

``operations / OPERATIONS + bytes / rate + CALL``: floating-point operations by PyTorch's own formulas
(`torch.utils.flop_counter`), bytes read and written at a rate by the kind of operator. The rates are those of one core
in 2026; only their ratios matter to a schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node
from torch.utils.flop_counter import flop_registry

from .nodes import is_random
from .seams import pytree, schema_of

OPERATIONS, CONVOLVED = 1e11, 6e10
"""Floating-point operations a second, of matrix products and of convolutions."""
BYTES = 2.5e10
"""Bytes a second of operators that go through their arguments once."""
DRAWN = 1.3e9
"""Bytes a second of random numbers."""
CALL = 6e-6
"""Seconds of a call."""

SLOW = {
    "max_pool": 1.2e9,
    **dict.fromkeys(("softmax", "batch_norm", "tanh", "pool", "loss", "exp", "log", "erf"), 4e9),
    **dict.fromkeys(("gelu", "silu", "sigmoid", "norm"), 1e10),
}
"""Bytes a second of slower operators, by a part of their names; the first that fits."""


def seconds(node: Node, results: Mapping[Node, Any]) -> float:
    """Return the seconds of an operator, by its arguments' and its own results, tensors without bytes."""
    args, kwargs = pytree.tree_map_only(Node, results.__getitem__, (node.args, node.kwargs))
    result = results[node]
    count = sum(
        leaf.numel() * leaf.element_size()
        for leaf in pytree.tree_leaves((args, kwargs, result))
        if isinstance(leaf, torch.Tensor)
    )
    formula = flop_registry.get(node.target.overloadpacket)
    work = formula(*args, **kwargs, out_val=result) if formula is not None else 0
    rate = CONVOLVED if "convolution" in schema_of(node.target).name else OPERATIONS
    return float(work / rate + count / _rate(node) + CALL)


def _rate(node: Node) -> float:
    name = schema_of(node.target).name
    if is_random(node):
        return DRAWN
    return BYTES if "backward" in name else next((rate for part, rate in SLOW.items() if part in name), BYTES)
