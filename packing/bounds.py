"""The lower bound: the most bytes alive at once.

::

    bytes live     .--.
              .----'  '--.        lower bound = height of the highest step; its moment is the witness
        ------'          '----
        ----------------------> clock

Blocks alive at one moment have disjoint address ranges, so no arena is smaller than the sum of their sizes
(in a gap: of what the gap leaves of them). With alignment the bound is a little stronger. Let g divide all
alignments and all window beginnings. At any moment each live window begins at a multiple of g, so windows
occupy whole cells of g bytes, and no cell is shared; only the topmost may leave its last cell unfinished.
Hence the peak is at least sum(round_up(window, g)) - max(round_up(window, g) - window).

A block also needs its whole size above its offset, even where gaps never let it be alive as a whole. So does a
group of blocks at known distances, and so do two blocks that are kept apart.

O(k log k) time for k pieces.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .constraints import Reduction, reduce
from .problem import IntArray, Pieces, Problem

# Moments examined for the padding of their topmost block. Any number is correct; more may find a higher
# bound.
_MOMENTS = 64


class Bound(NamedTuple):
    """A lower bound and its witness: a tick at which it is attained.

    None without blocks, and where two blocks that are kept apart need more than is ever alive at once.
    """

    bytes: int
    moment: int | None


def lower_bound(problem: Problem) -> int:
    """Bytes below which no placement's peak can be.

    Examples
    --------
    Blocks 0 and 1 are alive together from tick 1 on, so no arena is smaller than both:

    >>> from stowplan.packing import Problem, lower_bound
    >>> lower_bound(Problem(size=[300, 200, 100], start=[0, 1, 3], end=[2, 4, 5]))
    500
    """
    return bound(problem).bytes


def lower_bound_moment(problem: Problem) -> int | None:
    """Return a tick at which the lower bound is attained; None where there is none (see `Bound`)."""
    return bound(problem).moment


def bound(problem: Problem, reduction: Reduction | None = None) -> Bound:
    """Compute the lower bound together with its witness; ``reduction`` is the problem's, if known already."""
    if not len(problem):
        return Bound(0, None)
    if not problem.constrained:
        return _bound(problem, None)
    reduction = reduction or reduce(problem)
    real = _bound(reduction.real, None if reduction.exact else reduction.occupied)
    return real if real.bytes >= reduction.largest_pair else Bound(reduction.largest_pair, None)


def _bound(problem: Problem, occupied: tuple[IntArray, IntArray, IntArray] | None) -> Bound:
    top = np.maximum(problem.fixed, 0) + problem.size
    highest = int(top.argmax())
    best = Bound(int(top[highest]), int(problem.start[highest]))
    pieces = problem.pieces()
    if not len(pieces.start):
        return best
    times, live = live_bytes(*(occupied or (pieces.start, pieces.end, pieces.upper - pieces.lower)))
    peak = int(live.argmax())
    if live[peak] >= best.bytes:
        best = Bound(int(live[peak]), int(times[peak]))
    if occupied is not None:
        return best
    unit = int(np.gcd(np.gcd.reduce(problem.alignment), np.gcd.reduce(pieces.lower)))
    return best if unit == 1 else _padded(pieces, unit, best)


def live_bytes(start: IntArray, end: IntArray, width: IntArray) -> tuple[IntArray, IntArray]:
    """Sum the widths alive over time.

    Parameters
    ----------
    start, end
        k intervals of ticks.
    width
        Bytes that each counts for, (k,).

    Returns
    -------
    times, live
        ``live[i]`` bytes from tick ``times[i]`` until ``times[i + 1]``; times rise strictly.
    """
    ticks = np.concatenate([start, end])
    order = np.argsort(ticks, kind="stable")
    ticks = ticks[order]
    total = np.cumsum(np.concatenate([width, -width])[order])
    last = np.flatnonzero(np.append(ticks[1:] != ticks[:-1], True))
    return ticks[last], total[last]


def _padded(pieces: Pieces, unit: int, best: Bound) -> Bound:
    width = pieces.upper - pieces.lower
    padding = -width % unit
    if not padding.any():
        return best
    times, live = live_bytes(pieces.start, pieces.end, width + padding)
    for k in np.argsort(-live, kind="stable")[:_MOMENTS]:
        if live[k] <= best.bytes:
            break
        alive = (pieces.start <= times[k]) & (times[k] < pieces.end)
        certain = int(live[k] - padding[alive].max())
        if certain > best.bytes:
            best = Bound(certain, int(times[k]))
    return best
