"""Pisarchyk & Lee's greedy by size as a double loop: the specification of ``packing/core/greedy.hpp``."""

from __future__ import annotations

from itertools import pairwise

from stowplan.packing import Problem


def greedy_by_size(problem: Problem) -> list[int]:
    first = problem.pieces().first.tolist()
    rows = list(zip(*(c.tolist() for c in problem.pieces()[1:]), strict=True))
    pieces = [rows[a:b] for a, b in pairwise(first)]
    size, alignment, fixed = (c.tolist() for c in (problem.size, problem.alignment, problem.fixed))
    placed = {i: f for i, f in enumerate(fixed) if f >= 0}
    for i in sorted(range(len(problem)), key=lambda i: (-size[i], i)):
        if i not in placed:
            placed[i] = smallest_hole(pieces[i], alignment[i], [(pieces[j], x) for j, x in placed.items()])
    return [placed[i] for i in range(len(problem))]


def smallest_hole(
    mine: list[tuple[int, ...]], alignment: int, others: list[tuple[list[tuple[int, ...]], int]]
) -> int:
    # Offsets x with above < x < below collide with a piece of a placed block.
    forbidden = sorted(
        (x + low - upper, x + high - lower)
        for theirs, x in others
        for t0, t1, low, high in theirs
        for s, e, lower, upper in mine
        if s < t1 and t0 < e
    )
    holes = []  # (width, lowest aligned offset)
    floor = 0
    for above, below in forbidden:
        x = -(-floor // alignment) * alignment
        if x <= above:
            holes.append((above - floor, x))
        floor = max(floor, below)
    return min(holes)[1] if holes else -(-floor // alignment) * alignment
