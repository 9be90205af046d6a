"""How many pieces overlap in time: what the time and the memory of solvers that look at pairs grow with."""

from __future__ import annotations

import numpy as np

from .problem import IntArray, Problem


def pairs_alive_together(problem: Problem) -> int:
    """Count pairs of pieces that overlap in time. O(k log k)."""
    return int(meetings(problem).sum()) // 2


def meetings(problem: Problem) -> IntArray:
    """Count for each piece the others that overlap it in time, (k,). O(k log k)."""
    pieces = problem.pieces()
    # Pieces that start before my end and end by my start do not overlap me; I am among the others.
    before_end = np.searchsorted(np.sort(pieces.start), pieces.end, "left")
    before_start = np.searchsorted(np.sort(pieces.end), pieces.start, "right")
    return np.asarray(before_end - before_start - 1, dtype=np.int64)
