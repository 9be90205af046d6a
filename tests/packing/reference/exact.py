"""The smallest peak by trying every offset: the specification of ``packing/core/exact/exact.hpp``."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from stowplan.packing import Problem


def smallest_peak(problem: Problem) -> int | None:
    """None where the fixed offsets contradict each other. For tiny problems."""
    most = ceiling(problem)
    if not fits(problem, most):
        return None
    return bisect_left(range(most), True, key=lambda capacity: fits(problem, capacity))


def ceiling(problem: Problem) -> int:
    """Enough for any placement: everything stacked, above the highest fixed offset."""
    return int(problem.size.sum() + problem.alignment.sum() + max(problem.fixed, default=0)) + 1


def fits(problem: Problem, capacity: int) -> bool:
    first = problem.pieces().first.tolist()
    rows = list(zip(*(c.tolist() for c in problem.pieces()[1:]), strict=True))
    pieces = [rows[a:b] for a, b in pairwise(first)]
    placed: list[int] = []

    def collides(i: int, x: int, k: int) -> bool:
        return any(
            s < t1 and t0 < e and x + lower < placed[k] + high and placed[k] + low < x + upper
            for s, e, lower, upper in pieces[i]
            for t0, t1, low, high in pieces[k]
        )

    def place(i: int) -> bool:
        if i == len(problem):
            return True
        fixed = int(problem.fixed[i])
        room = range(0, capacity - int(problem.size[i]) + 1, int(problem.alignment[i]))
        for x in [x for x in room if fixed in (-1, x)]:
            if not any(collides(i, x, k) for k in range(i)):
                placed.append(x)
                if place(i + 1):
                    return True
                placed.pop()
        return False

    return place(0)
