"""Links that are split over ranks, and dropout whose masks are those of the unsplit network.

::

    rank          0         1                        0  1
    columns   W [ - - - | - - - ]  of outputs   W  [ -  - ]   rows: of inputs, so that the products are summed,
                                                   [ -  - ]   and the bias is added to the sum

Matrices are (outputs, inputs), as Chainer's. Their parts are drawn from a NumPy generator that knows the rank: two
ranks do not start alike. `take_parts` copies the parts of an unsplit network instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ....chainer.rerun import trust
from ....compat import enable_chainer
from .collectives import all_reduce, copy, gather_linear, reduce_scatter
from .ranks import ParallelError, Ranks

enable_chainer()

import chainer  # noqa: E402 (mended first)
import chainer.functions as F  # noqa: E402, N812

__all__ = ["ColumnLinear", "Normalization", "RowLinear", "dropout", "take_parts"]


class ColumnLinear(chainer.Link):  # type: ignore[misc]
    """A linear link of which each rank has some of the outputs.

    Parameters
    ----------
    inputs, outputs
        Widths of the unsplit link; the outputs are a multiple of the number of ranks.
    ranks
        If split along the sequence, x is this rank's part of the rows, and the result has all of them.
    seed
        Numbers 0 and above that no other link has; the same on every rank.
    """

    axes: ClassVar[dict[str, int]] = {"W": 0, "b": 0}

    def __init__(self, inputs: int, outputs: int, ranks: Ranks, seed: Sequence[int]) -> None:
        super().__init__()
        self.ranks = ranks
        part = ranks.part(outputs, "columns")
        with self.init_scope():
            self.W = _drawn((part.stop - part.start, inputs), inputs, ranks, seed)
            self.b = chainer.Parameter(np.zeros(part.stop - part.start, np.float32))

    def forward(self, x: Any) -> Any:
        """Return (rows, outputs / ranks) for x (rows, inputs), or (rows / ranks, inputs) of a split sequence."""
        if self.ranks.sequence:
            return gather_linear(x, self.W, self.b, self.ranks)
        return F.linear(copy(x, self.ranks), self.W, self.b)


class RowLinear(chainer.Link):  # type: ignore[misc]
    """A linear link of which each rank has some of the inputs; its results are summed over the ranks.

    Parameters
    ----------
    inputs, outputs
        Widths of the unsplit link; the inputs are a multiple of the number of ranks.
    ranks
        If split along the sequence, the result is this rank's part of the rows.
    seed
        As for `ColumnLinear`.
    """

    axes: ClassVar[dict[str, int]] = {"W": 1}

    def __init__(self, inputs: int, outputs: int, ranks: Ranks, seed: Sequence[int]) -> None:
        super().__init__()
        self.ranks = ranks
        part = ranks.part(inputs, "rows")
        with self.init_scope():
            self.W = _drawn((outputs, part.stop - part.start), inputs, ranks, seed)
            self.b = chainer.Parameter(np.zeros(outputs, np.float32))

    def forward(self, x: Any) -> Any:
        """Return (rows, outputs), or (rows / ranks, outputs) of a split sequence, for x (rows, inputs / ranks)."""
        y = F.linear(x, self.W)
        if self.ranks.sequence:
            y, b = reduce_scatter(y, self.ranks), copy(self.b, self.ranks)
        else:
            y, b = all_reduce(y, self.ranks), self.b
        return _AddBias().apply((y, b))[0]


@trust
class _AddBias(chainer.FunctionNode):  # type: ignore[misc]
    """Add b (n,) to x (k, n).

    With ``F.broadcast_to`` a backward pass would keep the gradients of all layers to its end: Chainer goes through
    functions by their distance from the leaves, and comes to those of parameters alone last.
    """

    def forward(self, inputs: Any) -> Any:
        return (inputs[0] + inputs[1],)

    def backward(self, indexes: Any, grads: Any) -> Any:
        return grads[0], F.sum(grads[0], axis=0)


class Normalization(chainer.Link):  # type: ignore[misc]
    """Layer normalization (J. L. Ba, J. R. Kiros and G. E. Hinton, arXiv 1607.06450); parameters whole on every rank.

    Parameters
    ----------
    width
        The width of a row.
    ranks
        If split along the sequence, rows are this rank's, and the parameters' gradients are summed.
    """

    axes: ClassVar[dict[str, int]] = {}

    def __init__(self, width: int, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks
        with self.init_scope():
            self.gamma = chainer.Parameter(np.ones(width, np.float32))
            self.beta = chainer.Parameter(np.zeros(width, np.float32))

    def forward(self, x: Any) -> Any:
        """Return (rows, width) for x (rows, width)."""
        gamma, beta = self.gamma, self.beta
        if self.ranks.sequence:
            gamma, beta = copy(gamma, self.ranks), copy(beta, self.ranks)
        return F.layer_normalization(x, gamma, beta)


def take_parts(link: Any, whole: Any) -> None:
    """Copy into a split link, and the links in it, this rank's parts of the parameters of an unsplit one.

    Raises
    ------
    ParallelError
        They are not the same network.
    """
    sources: dict[str, Any] = {name: parameter.array for name, parameter in whole.namedparams()}
    targets = dict(link.namedparams())
    if sources.keys() != targets.keys():
        name = min(sources.keys() ^ targets.keys())
        raise ParallelError(f"{name} is in one of the networks only; expected the same network, unsplit")
    for path, owner in link.namedlinks():
        for name, axis in getattr(owner, "axes", {}).items():
            key = f"{path.rstrip('/')}/{name}"
            part = owner.ranks.part(sources[key].shape[axis], f"rows or columns of {key}")
            sources[key] = sources[key][(slice(None),) * axis + (part,)]
    for key, target in targets.items():
        if sources[key].shape != target.shape:
            raise ParallelError(
                f"{key} is {target.shape}, its part of the other {sources[key].shape}; expected one shape"
            )
        target.array[...] = sources[key]


def _drawn(shape: tuple[int, int], inputs: int, ranks: Ranks, seed: Sequence[int]) -> Any:
    """Draw a matrix from a normal distribution of variance 1 / inputs."""
    random = np.random.default_rng([*seed, ranks.rank])
    drawn = random.standard_normal(shape, np.float32)
    drawn *= np.float32(inputs**-0.5)
    return chainer.Parameter(drawn)


# --- dropout --------------------------------------------------------------------------------------------------------

_WORDS = 8  # numbers of 32 bits at each place of Philox's counter
_PIECE = 1 << 16  # numbers drawn at once


def dropout(x: Any, ratio: float, seed: Sequence[int], first: int = 0) -> Any:
    """Drop elements at random, the same ones however ``x`` is split over ranks.

    Element k of the unsplit array is kept or dropped by number k of the generator Philox, which can begin anywhere (J.
    K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). So parts fit together, and ranks that
    have the array whole drop the same elements. The mask takes a byte for each element, where Chainer's takes four.
    Outside of training nothing is dropped.

    Parameters
    ----------
    x
        Float, any shape; a part of the unsplit array, all of whose elements follow one another in it.
    ratio
        Share that is dropped, from 0 up to 1.
    seed
        Numbers 0 and above that no other call has; the same on every rank.
    first
        Which element of the unsplit array is the first of ``x``.
    """
    if not 0 <= ratio < 1:
        raise ParallelError(f"a dropout ratio of {ratio}; expected one from 0 up to 1")
    if ratio == 0 or not chainer.config.train:
        return chainer.as_variable(x)
    return _Dropout(ratio, seed, first).apply((x,))[0]


@trust
class _Dropout(chainer.FunctionNode):  # type: ignore[misc]
    """Draws its mask where it has none: a counter tells what it drew, so a rerun makes the same bits again."""

    def __init__(self, ratio: float, seed: Sequence[int], first: int, kept: Any = None) -> None:
        super().__init__()
        self.ratio, self.seed, self.first, self.kept = ratio, seed, first, kept

    def forward(self, inputs: Any) -> Any:
        if self.kept is None:
            self.kept = _kept(inputs[0].shape, self.ratio, self.seed, self.first)
        y = inputs[0] * self.kept
        y *= y.dtype.type(1 / (1 - self.ratio))
        return (y,)

    def backward(self, indexes: Any, grads: Any) -> Any:
        return (_Dropout(self.ratio, self.seed, self.first, self.kept).apply(grads)[0],)


def _kept(shape: tuple[int, ...], ratio: float, seed: Sequence[int], first: int) -> Any:
    """Draw which elements stay, bool, in pieces that need little memory."""
    kept = np.empty(shape, bool)
    flat = kept.reshape(-1)
    random = np.random.Philox(np.random.SeedSequence(tuple(seed)))
    random.advance(first // _WORDS)
    ahead, least = first % _WORDS, np.uint32(int(ratio * 2**32))
    for begin in range(-ahead, flat.size, _PIECE):
        words = random.random_raw(_PIECE // 2).view(np.uint32)
        start, stop = max(begin, 0), min(begin + _PIECE, flat.size)
        np.greater_equal(words[start - begin : stop - begin], least, out=flat[start:stop])
    return kept
