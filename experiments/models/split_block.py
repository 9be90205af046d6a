"""Blocks of a GPT split over ranks: V. A. Korthikanti et al., MLSys 2023 (arXiv 2205.05198), figures 2, 4 and 5.

::

    x --+-- normalize -- query, key, value | attention | project -- drop --(+)--> y
        |                      each rank some heads                         ^
        +-------------------------------------------------------------------+
    y --+-- normalize -- widen | GeLU | narrow -- drop --(+)-->
        |             each rank some columns              ^
        +-------------------------------------------------+

Attention is causal, a word sees itself and those before. Rows are words, those of one place in all sentences of the
batch next to each other (words, batch, width), so that a part of the sequence is a part of the rows. Functions keep for
the backward pass what the paper counts, and no more: see `activation_bytes`.
"""

from __future__ import annotations

from typing import Any, Literal

import chainer
import chainer.functions as F  # noqa: N812
import numpy as np

from stowplan.chainer import trust
from stowplan.papers.mlsys2023 import parallel
from stowplan.papers.mlsys2023.parallel import Ranks

Parallel = Literal["data", "tensor", "sequence", "selective"]


def activation_bytes(
    words: int, batch: int, width: int, heads: int, ranks: int, parallel: Parallel, item: int = 4
) -> float:
    """Bytes that a rank keeps of one block from the forward to the backward pass.

    The paper's equations 1, 2 and 4 for elements of `item` bytes, 2 in the paper, and 4 here; masks have a byte for
    each element in both. By tensor, with s words, batch b, width h and heads a, in units of s b h:

    ==========================================  ===================  ==================================
    tensor                                      bytes an element     divided by `ranks`
    ==========================================  ===================  ==================================
    input of each normalization                 2 · item             sequence
    input of query, key and value, of widen     2 · item             sequence (each gathers it again)
    query, key, value                           3 · item             tensor, sequence
    softmax's output, and that dropped out      2 · item · a s / h   tensor, sequence
    attention's mask                            a s / h              tensor, sequence
    input of project                            item                 tensor, sequence
    mask of each other dropout                  2                    sequence
    input of GeLU, and of narrow                2 · 4 · item         tensor, sequence
    ==========================================  ===================  ==================================

    With `item` 2: 34 + 5 a s / h on one rank; 10 + (24 + 5 a s / h) / t; (34 + 5 a s / h) / t. By data, a rank has
    b / t of the batch, and so (34 + 5 a s / h) / t too. "selective" is by sequence with selective recomputation
    (section 5): what softmax and dropout of attention make is made again, which leaves 34 / t.
    """
    whole = 4 * item + 2
    attention = 0 if parallel == "selective" else (2 * item + 1) * heads * words / width
    split = 12 * item + attention
    unit = words * batch * width
    return unit * (whole + split / ranks if parallel == "tensor" else (whole + split) / ranks)


def parameter_count(width: int, ranks: int) -> int:
    """Parameters of a block that a rank has: 12 h² + 13 h, of which 9 h are not split but 7 h and all matrices are."""
    return (12 * width**2 + 7 * width) // ranks + 6 * width


class Block(chainer.Chain):  # type: ignore[misc]
    """Attention and a feed-forward network.

    Parameters
    ----------
    width, heads
        Those of the unsplit block; the heads are a multiple of the number of ranks.
    ranks
        The ranks that it is split over, and how.
    drop
        Ratio of all dropouts.
    seed
        A number that no other block of the network has; the same on every rank.
    """

    def __init__(self, width: int, heads: int, ranks: Ranks, drop: float = 0.1, seed: int = 0) -> None:
        super().__init__()
        part = ranks.part(heads, "heads")
        self.ranks, self.drop, self.seed, self.calls = ranks, drop, seed, 0
        self.heads, self.head = part.stop - part.start, width // heads
        with self.init_scope():
            self.before_attention = parallel.Normalization(width, ranks)
            self.look = parallel.ColumnLinear(width, 3 * width, ranks, (seed, 0))
            self.project = parallel.RowLinear(width, width, ranks, (seed, 1))
            self.before_feed = parallel.Normalization(width, ranks)
            self.widen = parallel.ColumnLinear(width, 4 * width, ranks, (seed, 2))
            self.narrow = parallel.RowLinear(4 * width, width, ranks, (seed, 3))

    def forward(self, x: Any, batch: int) -> Any:
        """Return rows like `x`: (words * batch, width), or this rank's part of them in a split sequence."""
        self.calls += chainer.config.train
        x = x + self._drop(self.project(self._attend(self.look(self.before_attention(x)), batch)), 0)
        return x + self._drop(self.narrow(gelu(self.widen(self.before_feed(x)))), 1)

    def _attend(self, looked: Any, batch: int) -> Any:
        """Return (words * batch, width / ranks) for queries, keys and values by head, three times as wide."""
        words = len(looked) // batch
        by_head = F.reshape(looked, (words, batch, self.heads, 3, self.head))
        queries, keys, values = (
            F.transpose(F.squeeze(y, 3), (2, 1, 0, 3)) for y in F.split_axis(by_head, 3, axis=3)
        )
        shares = causal_softmax(F.matmul(queries, keys, transb=True), self.head**-0.5)
        # Heads come first, so that what a rank has of the unsplit mask is one piece.
        shares = parallel.dropout(shares, self.drop, self._key(2), self.ranks.rank * shares.size)
        seen = F.transpose(F.matmul(shares, values), (2, 1, 0, 3))
        return F.reshape(seen, (words * batch, self.heads * self.head))

    def _drop(self, y: Any, which: int) -> Any:
        first = self.ranks.rank * y.size if self.ranks.sequence else 0
        return parallel.dropout(y, self.drop, self._key(which), first)

    def _key(self, which: int) -> tuple[int, ...]:
        return self.seed, self.calls, which


class Blocks(chainer.ChainList):  # type: ignore[misc]
    """Blocks one after the other; parameters are those of `Block`."""

    def __init__(self, layers: int, width: int, heads: int, ranks: Ranks, drop: float = 0.1) -> None:
        super().__init__(*(Block(width, heads, ranks, drop, seed) for seed in range(layers)))

    def forward(self, x: Any, batch: int) -> Any:
        """Return rows like `x`."""
        for block in self:
            x = block(x, batch)
        return x


# --- functions that keep no more than they need ---------------------------------------------------------------------


def causal_softmax(x: Any, scale: float) -> Any:
    """Softmax of ``scale * x`` (..., words, words) along the last axis, without what comes later; keeps its output."""
    return _CausalSoftmax(scale).apply((x,))[0]


@trust
class _CausalSoftmax(chainer.FunctionNode):  # type: ignore[misc]
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = np.float32(scale)

    def forward(self, inputs: Any) -> Any:
        y = inputs[0] * self.scale
        y[..., np.triu(np.ones(y.shape[-2:], bool), 1)] = -np.inf
        y -= y.max(axis=-1, keepdims=True)
        np.exp(y, out=y)
        y /= y.sum(axis=-1, keepdims=True)
        self.retain_outputs((0,))
        return (y,)

    def backward(self, indexes: Any, grads: Any) -> Any:
        return _CausalSoftmaxGrad(self.scale).apply((*self.get_retained_outputs(), *grads))


class _Gradient(chainer.FunctionNode):  # type: ignore[misc]
    def backward(self, indexes: Any, grads: Any) -> Any:
        raise NotImplementedError("gradients through gradients")


class _CausalSoftmaxGrad(_Gradient):
    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, inputs: Any) -> Any:
        y, gy = inputs
        gx = gy - np.einsum("...j,...j->...", y, gy)[..., None]
        gx *= y
        gx *= self.scale
        return (gx,)


_INNER, _CUBE = np.float32((2 / np.pi) ** 0.5), np.float32(0.044715)


def gelu(x: Any) -> Any:
    """Return x · Φ(x), by tanh (D. Hendrycks and K. Gimpel, arXiv 1606.08415, section 2); keeps its input."""
    return _Gelu().apply((x,))[0]


@trust
class _Gelu(chainer.FunctionNode):  # type: ignore[misc]
    def forward(self, inputs: Any) -> Any:
        (x,) = inputs
        self.retain_inputs((0,))
        y = _tanh(x)
        y += 1
        y *= x
        y *= np.float32(0.5)
        return (y,)

    def backward(self, indexes: Any, grads: Any) -> Any:
        return _GeluGrad().apply((*self.get_retained_inputs(), *grads))


class _GeluGrad(_Gradient):
    def forward(self, inputs: Any) -> Any:
        x, gy = inputs
        t = _tanh(x)
        gx = np.square(x)
        gx *= 3 * _CUBE * _INNER
        gx += _INNER
        gx *= x
        np.subtract(1, t, out=t)
        gx *= t
        np.subtract(2, t, out=t)  # 1 + tanh
        gx *= t
        gx += t
        gx *= gy
        gx *= np.float32(0.5)
        return (gx,)


def _tanh(x: Any) -> Any:
    """Return tanh of what stands for Φ's."""
    t = np.square(x)
    t *= _CUBE
    t += 1
    t *= x
    t *= _INNER
    return np.tanh(t, out=t)
