"""Orders in which the papers' greedy strategies take blocks: by breadth, and as they are allocated."""

from __future__ import annotations

import numpy as np

from ...packing.bounds import live_bytes
from ...packing.orders import by_size
from ...packing.problem import IntArray, Problem


def by_start(problem: Problem) -> IntArray:
    """Sort rows by rising start, then row."""
    return np.argsort(problem.start, kind="stable").astype(np.int64)


def by_breadth(problem: Problem) -> IntArray:
    """Sort rows by the greatest breadth that they live through, then falling size, then row.

    The breadth of a tick is the sum of the sizes alive at it. Ticks are taken by falling breadth, the later of
    equals first, and at each the blocks alive that have not been taken before: Pisarchyk & Lee 2020, section 5.3.
    """
    pieces = problem.pieces()
    k = len(pieces.start)
    if not k:
        return by_size(problem)
    ticks, live = live_bytes(pieces.start, pieces.end, pieces.upper - pieces.lower)
    turn = np.empty(len(ticks), dtype=np.int64)
    turn[np.lexsort((-ticks, -live))] = np.arange(len(ticks))
    left, right = np.searchsorted(ticks, pieces.start), np.searchsorted(ticks, pieces.end)
    earliest = np.full(len(problem) + 1, len(ticks), dtype=np.int64)
    of = np.repeat(np.arange(len(problem)), np.diff(pieces.first))
    np.minimum.at(earliest, of, range_minima(turn, left, right))
    return np.lexsort((-problem.size, earliest[:-1])).astype(np.int64)


def range_minima(values: IntArray, left: IntArray, right: IntArray) -> IntArray:
    """Return the least of ``values[left[i]:right[i]]`` for each i, the ranges not empty.

    Every range is the union of two of the same power of two; O((n + k) log n) time, O(n + k) memory.
    """
    result = np.empty(len(left), dtype=np.int64)
    level = np.frexp(right - left)[1] - 1  # floor of the binary logarithm
    minima, span = values, 1
    for height in range(int(level.max(initial=0)) + 1):
        mine = level == height
        result[mine] = np.minimum(minima[left[mine]], minima[right[mine] - span])
        minima = np.minimum(minima[:-span], minima[span:])
        span *= 2
    return result
