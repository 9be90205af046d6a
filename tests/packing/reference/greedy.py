"""Greedy packers as double loops: the specification of ``packing/core/greedy/greedy.hpp`` and of its orders."""

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


def greedy_by_size(problem: Problem) -> list[int]:
    return greedy(problem, by_size(problem))


def greedy_in_order(problem: Problem) -> list[int]:
    return greedy(problem, sorted(range(len(problem)), key=lambda i: (problem.start[i], i)))


def greedy_by_breadth(problem: Problem) -> list[int]:
    """The widest tick first, the later of equals; there the blocks not taken yet, by size."""
    pieces = rectangles(problem)

    def alive(tick: int) -> dict[int, int]:
        return {
            i: high - low
            for i, mine in enumerate(pieces)
            for start, end, low, high in mine
            if start <= tick < end
        }

    ticks = {start for mine in pieces for start, *_ in mine}
    order: list[int] = []
    for tick in sorted(ticks, key=lambda t: (-sum(alive(t).values()), -t)):
        order += sorted(alive(tick).keys() - set(order), key=lambda i: (-problem.size[i], i))
    return greedy(problem, order + sorted(set(range(len(problem))) - set(order)))


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
