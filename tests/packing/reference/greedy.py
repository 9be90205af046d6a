"""The greedy packer as a double loop: the specification of ``packing/core/greedy/greedy.hpp``."""

from __future__ import annotations

from itertools import pairwise

from stowplan.packing import Problem


def greedy(problem: Problem, order: list[int], fixed: list[int] | None = None) -> list[int]:
    """Place the rows in this order, each into the smallest hole; ``fixed`` stands in for the problem's."""
    pieces = rectangles(problem)
    alignment = problem.alignment.tolist()
    fixed = problem.fixed.tolist() if fixed is None else fixed
    placed = {i: f for i, f in enumerate(fixed) if f >= 0}
    for i in order:
        if i not in placed:
            placed[i] = smallest_hole(pieces[i], alignment[i], [(pieces[j], x) for j, x in placed.items()])
    return [placed[i] for i in range(len(problem))]


def by_size(problem: Problem) -> list[int]:
    return sorted(range(len(problem)), key=lambda i: (-problem.size[i], i))


def rectangles(problem: Problem) -> list[list[tuple[int, ...]]]:
    first = problem.pieces().first.tolist()
    rows = list(zip(*(c.tolist() for c in problem.pieces()[1:]), strict=True))
    return [rows[a:b] for a, b in pairwise(first)]


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
