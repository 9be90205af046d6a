"""A problem cut in two: blocks to be placed, in an order, and rectangles that stand already."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from stowplan.packing import Problem, pack

from .problems import problems


def is_plain(problem: Problem, row: int) -> bool:
    """Whether a block is free and one rectangle: a gap in which it keeps all its bytes is none."""
    p = problem.pieces()
    mine = list(zip(*(c.tolist()[p.first[row] : p.first[row + 1]] for c in p[1:]), strict=True))
    whole = (int(problem.start[row]), int(problem.end[row]), 0, int(problem.size[row]))
    return bool(problem.fixed[row] < 0 and mine == [whole])


class Partial:
    def __init__(self, problem: Problem, order: list[int]) -> None:
        self.problem = problem
        self.order = np.array(order, dtype=np.int64)
        self.base = pack(problem, "best_fit").offsets
        p, placed = problem.pieces(), set(order)
        standing = [
            (int(p.start[k]), int(p.end[k]), x + int(p.lower[k]), x + int(p.upper[k]))
            for row, x in enumerate(self.base.tolist())
            if row not in placed
            for k in range(p.first[row], p.first[row + 1])
        ]
        self.obstacles = np.array(standing, dtype=np.int64).reshape(-1, 4)

    def complete(self, found: dict[int, int]) -> np.ndarray:
        """The offsets of all blocks."""
        offsets = self.base.copy()
        for row, offset in found.items():
            offsets[row] = offset
        return offsets


@st.composite
def partials(draw: st.DrawFn, most: int = 12) -> Partial:
    """Plain blocks in any order; the others, and some plain ones, stand where best fit has put them."""
    problem = draw(problems(most))
    plain = [i for i in range(len(problem)) if is_plain(problem, i)]
    stay = draw(st.sets(st.sampled_from(plain), max_size=3)) if plain else set()
    return Partial(problem, draw(st.permutations([i for i in plain if i not in stay])))
