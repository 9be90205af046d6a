"""Whether operators lay out their results as tensors without bytes say.

A graph is traced on tensors that have shapes and strides alone, and some operators' real results have other strides
(batch normalization of a transposed tensor): what follows in the graph would fail, or have other bits than the
program, which goes by real strides. So each operator runs once, on zeros of the same layouts, before a plan is
accepted: one call for all operators that are alike. An operator that fails on zeros runs on ones (pivots count from 1).
If it fails on ones, too, and takes a tensor that is not contiguous, the step is refused: its strides cannot be checked.
Operators that are not PyTorch's own do not run here. O(n) calls for n operators.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node

from ..common.errors import GraphError
from .eager import constant_like
from .nodes import have_strides_alike, is_foreign, require_numbers
from .seams import OpOverload, pytree, unset_fake_temporarily


def require_layouts(graph: Graph) -> None:
    """Raise if an operator's real result has other strides than the graph says; random states are as before."""
    try:
        require_numbers(graph)
    except GraphError:
        return
    seen = set()
    leaves = pytree.tree_leaves([node.meta.get("val") for node in graph.nodes])
    devices = {one.device for one in leaves if isinstance(one, torch.Tensor) and one.device.type == "cuda"}
    with unset_fake_temporarily(), torch.no_grad(), torch.random.fork_rng(devices):
        for node in graph.nodes:
            said = node.meta.get("val")
            if said is None or not isinstance(node.target, OpOverload) or is_foreign(node):
                continue
            given = pytree.tree_map_only(Node, lambda one: one.meta.get("val"), (node.args, node.kwargs))
            key = str((node.target, pytree.tree_map_only(torch.Tensor, _layout, given)))
            if key not in seen:
                seen.add(key)
                _require(node, given, said)


def _require(node: Node, given: Any, said: Any) -> None:
    found = _called(node, given)
    if found is None:
        taken = [one for one in pytree.tree_leaves(given) if isinstance(one, torch.Tensor)]
        if all(one.is_contiguous() for one in taken):
            return
        raise GraphError(
            f"{node.name} fails on zeros and on ones, so its strides cannot be checked; expected contiguous tensors"
        )
    for real, one in zip(pytree.tree_leaves(found), pytree.tree_leaves(said), strict=False):
        tensors = isinstance(real, torch.Tensor) and isinstance(one, torch.Tensor)
        if (
            tensors
            and real.layout == torch.strided
            and real.numel() > 1
            and not have_strides_alike(real, one)
        ):
            raise GraphError(
                f"{node.name} has strides {tuple(real.stride())}, and PyTorch traces it with {tuple(one.stride())}; "
                "expected contiguous tensors and gradients, as of (rows, channels)"
            )


def _called(node: Node, given: Any) -> Any:
    """Return an operator's results on zeros, or on ones; None where it takes neither."""
    for number in (0, 1):
        args, kwargs = pytree.tree_map_only(torch.Tensor, partial(constant_like, number=number), given)
        with suppress(RuntimeError, IndexError, NotImplementedError):
            return node.target(*args, **kwargs)
    return None


def _layout(tensor: torch.Tensor) -> Any:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device
