"""Independent parts of a problem: blocks that share no moment with the rest can be packed alone.

::

    bytes   ####   |  ##        no block is alive on both sides of the bar: the peak is the greater of the
            #  ### | ####       two peaks, and only the part above the target needs more work
            +------+--------> clock

O(n log n).
"""

from __future__ import annotations

import numpy as np

from .problem import IntArray, Problem


def parts(problem: Problem) -> list[IntArray]:
    """Return the rows of each part, by rising time; a block that never occupies a byte is in none."""
    pieces = problem.pieces()
    rows = np.flatnonzero(np.diff(pieces.first))
    if not len(rows):
        return []
    start, end = pieces.start[pieces.first[rows]], pieces.end[pieces.first[rows + 1] - 1]
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])
    cuts = np.flatnonzero(start[order][1:] >= reach[:-1]) + 1
    return [np.sort(rows[part]) for part in np.split(order, cuts)]


def restricted(problem: Problem, rows: IntArray) -> Problem:
    """Return the problem of these rows alone, rising, with their gaps, alignment and fixed offsets."""
    gaps = problem.gaps[np.isin(problem.gaps[:, 0], rows)].copy()
    gaps[:, 0] = np.searchsorted(rows, gaps[:, 0])
    return Problem(
        problem.size[rows],
        problem.start[rows],
        problem.end[rows],
        gaps=gaps,
        alignment=problem.alignment[rows],
        fixed=problem.fixed[rows],
        id=None if problem.id is None else [problem.id[i] for i in rows.tolist()],
    )
