"""What the nodes of a graph of ATen operators are: operators, names of their results, writes in place, random draws.

==============  ====================================================================================================
``is_name``     a node that makes no bytes: a view, or one of several results
``is_in_place`` a functional node that may write on its first argument, which nothing else takes
``is_random``   a node that draws random numbers; ``is_foreign``: one that might
==============  ====================================================================================================

AOTAutograd makes every write in place an operator with a result of its own. Where an operator has a form in place, and
its first argument is as large as its result and dead afterwards, the form in place gives the same bits in fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from ..common.errors import GraphError
from .graph_errors import line_at
from .seams import OpOverload, key_of, pytree, schema_of

PHASE = "stowplan_phase"
"""Key in a node's ``meta`` of its `Phase`, if it is known."""

IN_PLACE = "stowplan_in_place"
"""Key in a node's ``meta``, if it may write on its first argument: the operator with a result of its own, and the one
in place; it calls one of them."""

VIEWS = ("aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes")
"""Operators whose results are views though their schemas declare none."""

BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default
"""Returns new running statistics besides its result, which does not depend on the old ones."""

LIBRARY = torch.library.Library("stowplan", "DEF")
"""Operators of the graphs besides PyTorch's."""


def define(schema: str, function: Callable[..., Any], tags: tuple[torch.Tag, ...] = ()) -> Any:
    """Add an operator, which calls a function; return it."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=tags)
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    return getattr(torch.ops.stowplan, name).default


BERNOULLI = define(
    "bernoulli(Tensor self, float p=0.5) -> Tensor",
    lambda self, p=0.5: torch.empty_like(self).bernoulli_(p),
    (torch.Tag.nondeterministic_seeded,),
)

PARTS = ("slice_scatter", "select_scatter")
WRITES = (
    *PARTS, "index_put", "index_add", "index_copy", "index_fill", "masked_scatter", "scatter", "scatter_add",
)  # fmt: skip
"""Operators that write into their first argument, or a copy of it; of `PARTS` the form in place is here."""

define(
    "slice_scatter_(Tensor(a!) self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1)"
    " -> Tensor(a!)",
    lambda self, src, dim=0, start=None, end=None, step=1: _write(
        self, torch.ops.aten.slice.Tensor(self, dim, start, end, step), src
    ),
)
define(
    "select_scatter_(Tensor(a!) self, Tensor src, int dim, SymInt index) -> Tensor(a!)",
    lambda self, src, dim, index: _write(self, self.select(dim, index), src),
)


def _write(whole: torch.Tensor, part: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
    part.copy_(written)
    return whole


def is_name(node: Node) -> bool:
    """Whether a node makes no bytes: it names a result of another, or a view of it."""
    return node.op == "call_function" and (node.target is getitem or is_view(node))


def is_view(node: Node) -> bool:
    """Whether a node makes views of one tensor, and no bytes."""
    target = node.target
    if not isinstance(target, OpOverload) or len(node.all_input_nodes) != 1:
        return False
    return bool(target.is_view) or schema_of(target).name in VIEWS


def is_random(node: Node) -> bool:
    """Whether a node draws random numbers."""
    tags = node.target.tags if isinstance(node.target, OpOverload) else ()
    return torch.Tag.nondeterministic_seeded in tags


def is_foreign(node: Node) -> bool:
    """Whether a node's operator is none of PyTorch: it may draw or count, without declaring it."""
    target = node.target
    return isinstance(target, OpOverload) and target.namespace not in ("aten", "prims", "stowplan")


def device_of(node: Node) -> torch.device | None:
    """Return the device that all tensors of a node's result are on; None where there are several."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    found = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
    return found.pop() if len(found) == 1 else None


def bytes_of(tree: Any) -> dict[int, int]:
    """Return the storages of a tree's tensors, and the bytes of each."""
    found = (leaf.untyped_storage() for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor))
    return {key_of(storage): int(storage.nbytes()) for storage in found}


def storages(node: Node) -> dict[int, int]:
    """Return the storages of a node's results, and the bytes of each."""
    return bytes_of(node.meta.get("val"))


def storage_of(node: Node) -> Node:
    """Return the node whose result has the storage that this one's lies on: of several results, the one of them."""
    while is_view(node) or (node.target is getitem and is_view(node.args[0])):
        node = node.all_input_nodes[0]
    return node


def named_by(node: Node) -> list[Node]:
    """Return the nodes that name results of this one, or of these, in their order."""
    found = [user for user in node.users if is_name(user)]
    return sorted(found + [name for user in found for name in named_by(user)])


def have_strides_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape have the same strides, wherever there is more than one element."""
    return all(
        a == b for a, b, size in zip(one.stride(), other.stride(), one.shape, strict=True) if size != 1
    )


def argument(node: Node, position: int, name: str) -> Any:
    """Return what a node gives for an argument of its operator."""
    return node.args[position] if position < len(node.args) else node.kwargs.get(name)


def require_numbers(graph: Graph, key: str = "val") -> None:
    """Raise unless all sizes are numbers."""
    for node in graph.nodes:
        for value in pytree.tree_leaves(node.meta.get(key)):
            is_strided = isinstance(value, torch.Tensor) and value.layout == torch.strided
            sizes = (*value.shape, *value.stride()) if is_strided else (value,)
            if any(isinstance(size, torch.SymInt | torch.SymFloat) for size in sizes):
                raise GraphError(
                    "the graph has sizes that are symbols; expected torch.compile(..., dynamic=False)"
                    if node.op == "placeholder"
                    else f"what {node.name} returns depends on values{line_at(node)}; expected shapes that do not, as "
                    "by weights in the place of a mask: (x * mask).sum() / mask.sum(); or one plain call first, where "
                    "the model keeps what it finds"
                )


def is_in_place(node: Node) -> bool:
    """Whether a node that could write on its first argument may: nothing else takes that one, nor does it twice."""
    if IN_PLACE not in node.meta:
        return False
    source = node.args[0]
    taken = sum(given is source for given in pytree.arg_tree_leaves(*node.args, **node.kwargs))
    alone = len(source.users) == taken == 1 and storage_of(source) is source
    if not alone or source.meta.get(PHASE) != node.meta.get(PHASE):
        return False
    made = source.args[0] if source.target is getitem else source
    return isinstance(made.target, OpOverload)


def leave_out_statistics(graph: Graph) -> None:
    """Let the backward pass of batch normalization by the batch read no running statistics, which it does not use."""
    backward = torch.ops.aten.native_batch_norm_backward.default
    for node in graph.find_nodes(op="call_function", target=backward):
        if node.args[7]:
            node.args = (*node.args[:3], None, None, *node.args[5:])


def mark_in_place(graph: Graph) -> None:
    """Set ``meta[IN_PLACE]`` of each node of a functional graph that could write on its first argument."""
    for node in graph.nodes:
        given = node.args[0] if node.op == "call_function" and node.args else None
        other = _in_place(node.target) if isinstance(given, Node) else None
        if other is None or not isinstance(given, Node):
            continue
        old, new = given.meta.get("val"), node.meta.get("val")
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
            continue
        alike = (new.shape, new.stride(), new.dtype) == (old.shape, old.stride(), old.dtype)
        if alike and old.untyped_storage().nbytes() == new.untyped_storage().nbytes():
            node.meta[IN_PLACE] = node.target, other


def run_in_place(graph: Graph) -> None:
    """Let each node that may write on its first argument do so, and no other."""
    for node in graph.nodes:
        if IN_PLACE in node.meta:
            node.target = node.meta[IN_PLACE][is_in_place(node)]


def _in_place(target: Any) -> Any:
    """Return the operator that writes on its first argument what this one returns; None if there is none."""
    if target is BERNOULLI:
        return torch.ops.aten.bernoulli_.float
    if not isinstance(target, OpOverload):
        return None
    name = schema_of(target).name.removeprefix("aten::")
    if torch.Tag.pointwise not in target.tags and name not in WRITES:
        return None
    packet = getattr(torch.ops.stowplan if name in PARTS else torch.ops.aten, f"{name}_", None)
    every = [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
    taken = [(one.name, str(one.type)) for one in schema_of(target).arguments]
    return next(
        (one for one in every if [(a.name, str(a.type)) for a in schema_of(one).arguments] == taken), None
    )
