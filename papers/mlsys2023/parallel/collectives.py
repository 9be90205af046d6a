"""Differentiable collectives: Chainer functions over the ranks that split a network.

==================  =========================  =========================  ==============================================
function            forward                    backward                   in the paper (figures 4 and 5)
==================  =========================  =========================  ==============================================
``copy``            the array itself           all-reduce                 f
``all_reduce``      all-reduce                 the gradient itself        f-bar
``all_gather``      all-gather                 reduce-scatter             g
``reduce_scatter``  reduce-scatter             all-gather                 g-bar
``gather_linear``   all-gather, then linear    gathers a second time      g, keeping a part only (section 4.2.2)
==================  =========================  =========================  ==============================================

What is whole on every rank must be the same on every rank, its gradient too. `copy` of a parameter that is whole while
its input is a part sums the parameter's gradient. All ranks call the same functions in the same order: a backward pass
of Chainer's runs in an order that the graph alone decides. With one rank nothing is copied.

Memory: the result of each, as large as NumPy makes it; no buffers between. A sum of n numbers over t ranks is to
rounding that of one rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....compat import enable_chainer
from .ranks import ParallelError, Ranks

enable_chainer()

import chainer  # noqa: E402 (mended first)
import chainer.functions as F  # noqa: E402, N812

__all__ = ["all_gather", "all_reduce", "copy", "gather_linear", "reduce_scatter"]


class _Collective(chainer.FunctionNode):  # type: ignore[misc]
    """One array in, one out; none is kept."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks


class _Copy(_Collective):
    def forward(self, inputs: Any) -> Any:
        return inputs

    def backward(self, indexes: Any, grads: Any) -> Any:
        return (all_reduce(grads[0], self.ranks),)


class _AllReduce(_Collective):
    def forward(self, inputs: Any) -> Any:
        x = np.ascontiguousarray(inputs[0])
        y = np.empty_like(x)
        self.ranks.comm.Allreduce(x, y)
        return (y,)

    def backward(self, indexes: Any, grads: Any) -> Any:
        return (copy(grads[0], self.ranks),)


class _AllGather(_Collective):
    def forward(self, inputs: Any) -> Any:
        return (_gathered(inputs[0], self.ranks),)

    def backward(self, indexes: Any, grads: Any) -> Any:
        return (reduce_scatter(grads[0], self.ranks),)


class _ReduceScatter(_Collective):
    def forward(self, inputs: Any) -> Any:
        x = np.ascontiguousarray(inputs[0])
        self.ranks.part(len(x), "rows")
        y = np.empty((len(x) // self.ranks.size, *x.shape[1:]), x.dtype)
        self.ranks.comm.Reduce_scatter_block(x, y)
        return (y,)

    def backward(self, indexes: Any, grads: Any) -> Any:
        return (all_gather(grads[0], self.ranks),)


class _GatherLinear(_Collective):
    """Keeps its own part of x alone, and gathers the rest again for the gradient of W."""

    def forward(self, inputs: Any) -> Any:
        self.retain_inputs((0, 1))
        x, w, b = inputs
        y = _gathered(x, self.ranks) @ w.T
        y += b
        return (y,)

    def backward(self, indexes: Any, grads: Any) -> Any:
        x, w = self.get_retained_inputs()
        (gy,) = grads
        found = []
        if 0 in indexes:
            found.append(reduce_scatter(F.matmul(gy, w), self.ranks))
        if 1 in indexes:
            found.append(F.matmul(gy, all_gather(x, self.ranks), transa=True))
        if 2 in indexes:
            found.append(F.sum(gy, axis=0))
        return tuple(found)


def copy(x: Any, ranks: Ranks) -> Any:
    """Return ``x``, which every rank has whole; the ranks' gradients are summed."""
    return x if ranks.size == 1 else _Copy(ranks).apply((x,))[0]


def all_reduce(x: Any, ranks: Ranks) -> Any:
    """Return the sum of the ranks' ``x``, whole on every rank, where all goes on alike."""
    return x if ranks.size == 1 else _AllReduce(ranks).apply((x,))[0]


def all_gather(x: Any, ranks: Ranks) -> Any:
    """Return the ranks' parts ``x`` (n, ...) one after the other, (n * ranks, ...); their gradients are summed."""
    return x if ranks.size == 1 else _AllGather(ranks).apply((x,))[0]


def reduce_scatter(x: Any, ranks: Ranks) -> Any:
    """Return this rank's part (n / ranks, ...) of the sum of the ranks' ``x`` (n, ...).

    Raises
    ------
    ParallelError
        n is no multiple of the number of ranks.
    """
    return x if ranks.size == 1 else _ReduceScatter(ranks).apply((x,))[0]


def gather_linear(x: Any, w: Any, b: Any, ranks: Ranks) -> Any:
    """Return ``all_gather(x) @ w.T + b``; for the backward pass keep ``x``, and not what was gathered.

    This takes an all-gather more, in the backward pass.

    Parameters
    ----------
    x
        This rank's rows, (n, k) float.
    w, b
        Its columns of the matrix, as Chainer's: (m, k) and (m,).

    Raises
    ------
    ParallelError
        A shape is another.
    """
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[1] or b.shape != w.shape[:1]:
        raise ParallelError(f"shapes {x.shape}, {w.shape} and {b.shape}; expected (n, k), (m, k) and (m,)")
    return F.linear(x, w, b) if ranks.size == 1 else _GatherLinear(ranks).apply((x, w, b))[0]


def _gathered(x: Any, ranks: Ranks) -> Any:
    y = np.empty((len(x) * ranks.size, *x.shape[1:]), x.dtype)
    ranks.comm.Allgather(np.ascontiguousarray(x), y)
    return y
