"""Results that hold on to more bytes than they have: some of PyTorch's losses, and what is to be written into a part.

``resize_`` makes a tensor smaller, and its storage not: the mean of ``mse_loss`` keeps the bytes of all elements for as
long as it is alive, and a traced tensor does not show it. So a copy takes its place, and the large storage goes::

    before    loss = mse_loss(y, t)                               4 bytes, and the storage of y's size
    after     elements = mse_loss(y, t)    loss = clone(elements)      4 bytes

A program that writes into a part of a tensor does so in an operator of its own in a functional graph, which first
copies what it writes to a storage as large as the whole: that is left out::

    before    part = slice(x)    y = slice_scatter(x, copy(part, written))
    after                        y = slice_scatter(x, written)
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten

SHRINKING = (
    aten.binary_cross_entropy.default,
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
)
"""Operators of two tensors first, whose result has been as large as both together, broadcast."""

LARGER = (aten.copy.default, aten.col2im.default)
"""Operators whose result lies on a storage at least as large as their first tensor's."""

SCATTER = (
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.diagonal_scatter.default,
    aten.as_strided_scatter.default,
    aten.copy_.default,
)
"""Operators that write their second tensor into a part of the first, or into all of it."""


def bytes_held(node: Node) -> int:
    """Return the bytes that the first result of a node holds on to for its arguments' sake; 0 where it does not."""
    if node.target in LARGER:  # as `copy` of a part, whose storage is like that of the whole
        return int(node.args[0].meta["val"].untyped_storage().nbytes())
    if node.target in SHRINKING and node.meta["val"].dim() == 0:
        one, other = (given.meta["val"].shape for given in node.args[:2])
        return int(torch.broadcast_shapes(one, other).numel() * node.meta["val"].element_size())
    return 0


def write_parts(graph: Graph) -> None:
    """Let what is written into a part of a tensor be written as it is."""
    for node in graph.find_nodes(op="call_function", target=aten.copy.default):
        part, written = node.args[:2]
        old, new = part.meta["val"], written.meta["val"]
        taken = all(user.target in SCATTER and user.args[0] is not node for user in node.users)
        if taken and (old.shape, old.dtype) == (new.shape, new.dtype):
            node.replace_all_uses_with(written)
            graph.erase_node(node)
    graph.eliminate_dead_code()


def shrink(graph: Graph) -> None:
    """Let users of a shrunk result take a copy, and let its node's ``meta["val"]`` hold the bytes that it does."""
    for target in (*LARGER, *SHRINKING):
        for node in graph.find_nodes(op="call_function", target=target):
            value = node.meta["val"]
            count = bytes_held(node) // value.element_size()
            if count <= value.untyped_storage().nbytes() // value.element_size():
                continue
            if target in SHRINKING:
                with graph.inserting_after(node):
                    copied = graph.call_function(aten.clone.default, (node,))
                node.replace_all_uses_with(copied, lambda user, copied=copied: user is not copied)
                copied.meta = dict(node.meta)
            with value.fake_mode, torch.no_grad():
                node.meta["val"] = value.new_empty(count).as_strided(value.shape, value.stride())
