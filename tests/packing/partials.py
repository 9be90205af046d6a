"""A problem cut in two: blocks to be placed, in an order, and rectangles that stand already."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from stowplan.packing import Problem, pack

from .problems import problems
from .reference.refill import Block, Rectangle


def is_plain(problem: Problem, row: int) -> bool:
    """Whether a block is free and one rectangle: a gap in which it keeps all its bytes is none."""
    p = problem.pieces()
    mine = list(zip(*(c.tolist()[p.first[row] : p.first[row + 1]] for c in p[1:]), strict=True))
    whole = (int(problem.start[row]), int(problem.end[row]), 0, int(problem.size[row]))
    return bool(problem.fixed[row] < 0 and mine == [whole])


def rectangles(problem: Problem, offsets: np.ndarray, rows: list[int]) -> list[Rectangle]:
    """The pieces of placed rows, in ticks and bytes."""
    p = problem.pieces()
    found = []
    for row in rows:
        for k in range(p.first[row], p.first[row + 1]):
            x = int(offsets[row])
            found.append((int(p.start[k]), int(p.end[k]), x + int(p.lower[k]), x + int(p.upper[k])))
    return found


class Partial:
    def __init__(self, problem: Problem, order: list[int]) -> None:
        self.problem = problem
        self.order = np.array(order, dtype=np.int64)
        self.base = pack(problem, "best_fit").offsets
        standing = rectangles(problem, self.base, [i for i in range(len(problem)) if i not in set(order)])
        self.standing = standing
        self.obstacles = np.array(standing, dtype=np.int64).reshape(-1, 4)
        columns = (problem.start, problem.end, problem.size, problem.alignment)
        self.blocks: list[Block] = [tuple(int(c[i]) for c in columns) for i in order]  # type: ignore[misc]

    def sorted(self) -> tuple[np.ndarray, list[Block]]:
        """The rows to be placed, rising, and their blocks."""
        places = sorted(range(len(self.order)), key=lambda k: int(self.order[k]))
        return self.order[places], [self.blocks[k] for k in places]

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
