"""Results that hold on to more bytes than they have: some of PyTorch's losses compute elements, then shrink the result.

``resize_`` makes a tensor smaller, and its storage not: the mean of ``mse_loss`` keeps the bytes of all elements for as
long as it is alive, and a traced tensor does not show it. So a copy takes its place, and the large storage goes::

    before    loss = mse_loss(y, t)                               4 bytes, and the storage of y's size
    after     elements = mse_loss(y, t)    loss = clone(elements)      4 bytes
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

__all__ = ["SHRINKING", "shrink"]

aten = torch.ops.aten

SHRINKING = (
    aten.binary_cross_entropy.default,
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
)
"""Operators of two tensors first, whose result has been as large as both together, broadcast."""


def shrink(graph: Graph) -> None:
    """Let users of a shrunk result take a copy, and let its node's ``meta["val"]`` have the bytes that it has."""
    for target in SHRINKING:
        for node in graph.find_nodes(op="call_function", target=target):
            _copy(graph, node)


def _copy(graph: Graph, node: Node) -> None:
    small = node.meta["val"]
    shape = torch.broadcast_shapes(*(given.meta["val"].shape for given in node.args[:2]))
    if small.shape == shape:  # no reduction
        return
    with graph.inserting_after(node):
        copied = graph.call_function(aten.clone.default, (node,))
    node.replace_all_uses_with(copied, lambda user: user is not copied)
    copied.meta = dict(node.meta)
    with small.fake_mode, torch.no_grad():
        node.meta["val"] = small.new_empty(shape).view(-1)[0]
