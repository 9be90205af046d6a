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

A block also needs its whole size above its offset, even where gaps never let it be alive as a whole.

O(k log k) time for k pieces.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .problem import IntArray, Pieces, Problem

# Moments examined for the padding of their topmost block. Any number is correct; more may find a higher
# bound.
_MOMENTS = 64


class Bound(NamedTuple):
    """A lower bound and its witness: the tick at which it is attained (None without blocks)."""

    bytes: int
    moment: int | None


def lower_bound(problem: Problem) -> int:
    """Bytes below which no placement's peak can be."""
    return bound(problem).bytes


def lower_bound_moment(problem: Problem) -> int | None:
    """Return a tick at which the lower bound is attained; None for a problem without blocks."""
    return bound(problem).moment


def bound(problem: Problem) -> Bound:
    """Compute the lower bound together with its witness."""
    if not len(problem):
        return Bound(0, None)
    top = np.maximum(problem.fixed, 0) + problem.size
    highest = int(top.argmax())
    best = Bound(int(top[highest]), int(problem.start[highest]))
    pieces = problem.pieces()
    if not len(pieces.start):
        return best
    times, live = live_bytes(pieces, pieces.upper - pieces.lower)
    peak = int(live.argmax())
    if live[peak] >= best.bytes:
        best = Bound(int(live[peak]), int(times[peak]))
    unit = int(np.gcd(np.gcd.reduce(problem.alignment), np.gcd.reduce(pieces.lower)))
    return best if unit == 1 else _padded(pieces, unit, best)


def live_bytes(pieces: Pieces, width: IntArray) -> tuple[IntArray, IntArray]:
    """Sum the widths alive over time.

    Parameters
    ----------
    pieces
        k rectangles.
    width
        Bytes that each counts for, (k,).

    Returns
    -------
    times, live
        ``live[i]`` bytes from tick ``times[i]`` until ``times[i + 1]``; times rise strictly.
    """
    ticks = np.concatenate([pieces.start, pieces.end])
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
    times, live = live_bytes(pieces, width + padding)
    for k in np.argsort(-live, kind="stable")[:_MOMENTS]:
        if live[k] <= best.bytes:
            break
        alive = (pieces.start <= times[k]) & (times[k] < pieces.end)
        certain = int(live[k] - padding[alive].max())
        if certain > best.bytes:
            best = Bound(certain, int(times[k]))
    return best
