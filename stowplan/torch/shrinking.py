"""Results that hold on to more bytes than they have: some of PyTorch's losses compute elements, then shrink the result.

``resize_`` makes a tensor smaller, and its storage not: the mean of ``mse_loss`` keeps the bytes of all elements for as
long as it is alive, and a traced tensor does not show it. So a copy takes its place, and the large storage goes::

    before    loss = mse_loss(y, t)                               4 bytes, and the storage of y's size
    after     elements = mse_loss(y, t)    loss = clone(elements)      4 bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph

__all__ = ["SHRINKING", "holding", "shrink"]

aten = torch.ops.aten

SHRINKING = (
    aten.binary_cross_entropy.default,
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
)
"""Operators of two tensors first, whose result has been as large as both together, broadcast."""


def holding(target: Any, args: Sequence[Any], result: Any) -> Any:
    """Return an operator's result as it is, or, where it is shrunk, as a part of a storage like the one that it has.

    ``args`` and ``result`` are tensors without bytes.
    """
    if target not in SHRINKING:
        return result
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
    return result if result.shape == shape or 0 in shape else result.new_empty(shape).view(-1)[0]


def shrink(graph: Graph) -> None:
    """Let users of a shrunk result take a copy, and let its node's ``meta["val"]`` hold the bytes that it does."""
    for target in SHRINKING:
        for node in graph.find_nodes(op="call_function", target=target):
            small = node.meta["val"]
            with small.fake_mode, torch.no_grad():
                held = holding(target, [given.meta["val"] for given in node.args[:2]], small)
            if held is not small:
                with graph.inserting_after(node):
                    copied = graph.call_function(aten.clone.default, (node,))
                node.replace_all_uses_with(copied, lambda user, copied=copied: user is not copied)
                copied.meta = dict(node.meta)
                node.meta["val"] = held
