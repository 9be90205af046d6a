"""Sekiyama et al.'s best fit as the paper tells it: scan the skyline, scan the blocks. Quadratic and worse.

The executable specification of ``packing/core/best_fit/best_fit.hpp``, with its rules for gaps, alignment and fixed
offsets.
"""

from __future__ import annotations

from itertools import pairwise

from stowplan.packing import Problem


def best_fit(problem: Problem, order: list[int] | None = None) -> list[int]:
    """``order``: the rows, preferred first; the paper's where None."""
    first = problem.pieces().first.tolist()
    rows = list(zip(*(c.tolist() for c in problem.pieces()[1:]), strict=True))
    pieces = [rows[a:b] for a, b in pairwise(first)]
    size, alignment, fixed = (c.tolist() for c in (problem.size, problem.alignment, problem.fixed))
    offsets = [max(f, 0) for f in fixed]
    hanging = [(*piece, fixed[i]) for i in range(len(problem)) if fixed[i] >= 0 for piece in pieces[i]]

    waiting = [i for i in range(len(problem)) if fixed[i] < 0 and pieces[i]]
    if not waiting:
        return offsets
    lifetime = [sum(end - start for start, end, _, _ in p) for p in pieces]
    if order is None:
        order = sorted(range(len(problem)), key=lambda i: (-lifetime[i], -size[i], i))
    waiting.sort(key=order.index)
    left = min(start for i in waiting for start, _, _, _ in pieces[i])
    right = max(end for i in waiting for _, end, _, _ in pieces[i])
    lines = [(left, right, 0)]  # (start, end, height), in time

    while waiting:
        line = min(lines, key=lambda line: (line[2], line[0]))
        height = line[2]
        level = [(a, b) for a, b, h in lines if h == height]

        def stands(i: int) -> bool:
            inside = any(line[0] <= s and e <= line[1] for s, e, _, _ in pieces[i])  # noqa: B023
            return inside and all(any(a <= s and e <= b for a, b in level) for s, e, _, _ in pieces[i])  # noqa: B023

        found = next((i for i in waiting if stands(i)), None)
        if found is None:
            k = lines.index(line)
            lifted = min(lines[j][2] for j in (k - 1, k + 1) if 0 <= j < len(lines))
            lines[k] = (line[0], line[1], lifted)
        else:
            waiting.remove(found)
            offsets[found] = lowest(pieces[found], alignment[found], height, hanging)
            for start, end, _, upper in pieces[found]:
                lines = raised(lines, start, end, offsets[found] + upper)
        lines = merged(lines)
    return offsets


def lowest(mine: list[tuple[int, ...]], alignment: int, base: int, hanging: list[tuple[int, ...]]) -> int:
    """The lowest aligned offset from ``base`` on that hits nothing fixed."""
    candidates = [base] + [f + upper - lower for _, _, _, upper, f in hanging for _, _, lower, _ in mine]
    for candidate in sorted(c for c in candidates if c >= base):
        x = -(-candidate // alignment) * alignment
        if not any(
            s < t1 and t0 < e and x + lower < f + high and f + low < x + upper
            for s, e, lower, upper in mine
            for t0, t1, low, high, f in hanging
        ):
            return x
    raise AssertionError("above everything fixed there is room")


def raised(lines: list[tuple[int, int, int]], start: int, end: int, top: int) -> list[tuple[int, int, int]]:
    parts = []
    for a, b, h in lines:
        cut = [(a, min(b, start), h), (max(a, start), min(b, end), top), (max(a, end), b, h)]
        parts += [part for part in cut if part[0] < part[1]]
    return parts


def merged(lines: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    result: list[tuple[int, int, int]] = []
    for line in lines:
        if result and result[-1][2] == line[2]:
            result[-1] = (result[-1][0], line[1], line[2])
        else:
            result.append(line)
    return result
