"""NNTrainer's memory planners V1 and V3, as baselines. Both go once through the blocks by start, then end, then row.

``nntrainer_v1``
    A stack. Blocks that are over leave its top; a block that is over further down is replaced by the new one only if
    both have the same size, the one nearest to the top of equals; else the new block goes on top.

``nntrainer_v3``
    First fit: the lowest hole between the blocks alive that is large enough, else above them all.

::

    V1   |      +---+                     V3   |
         |  +---+ c |   c is smaller           |  +---+     c fits into the hole
         |  | b +---+   than a                 |  | b +---+
         |  +---+                              |  +---+ c |
         |  | a |                              |  | a +---+
         +-------------> clock                 +-------------> clock

NNTrainer (Moon et al. 2022, arXiv 2206.04688; Apache-2.0), ``optimized_v1_planner`` and ``optimized_v3_planner``. Its
V2, which places gradients of weights apart from the rest, is left out: its addresses overlap. What differs: equal
blocks go by row where its sort leaves ties open; offsets are multiples of the alignment; blocks without bytes take part
in nothing, since in V3 they would hide what lies next to them. A block with gaps occupies its place throughout, and
fixed offsets are refused, as its planners know neither. O(n (l + log n)) for l blocks alive, in Python: seconds for
some ten thousand blocks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ...common.errors import UnsupportedConstraintError
from ...packing.problem import IntArray, Problem
from ...packing.registry import PackingOptions, register


class _Placed(NamedTuple):
    """A block that has its place."""

    offset: int
    size: int
    end: int


@register("nntrainer_v1")
def nntrainer_v1(problem: Problem, options: PackingOptions) -> IntArray:
    """Place by NNTrainer's planner V1: a stack in which equal sizes are reused.

    Raises
    ------
    UnsupportedConstraintError
        A block is fixed.
    """
    offsets = np.zeros(len(problem), dtype=np.int64)
    stack: list[_Placed] = []  # by rising offset; disjoint
    of_size: dict[int, list[int]] = {}  # places in the stack, from the bottom
    for row in _in_order(problem, "nntrainer_v1"):
        start, size, alignment = int(problem.start[row]), int(problem.size[row]), int(problem.alignment[row])
        while stack and stack[-1].end <= start:
            of_size[stack.pop().size].pop()
        offset = None
        for k in reversed(of_size.setdefault(size, [])):
            if stack[k].end <= start and stack[k].offset % alignment == 0:
                offset = stack[k].offset
                stack[k] = _Placed(offset, size, int(problem.end[row]))
                break
        if offset is None:
            top = stack[-1].offset + stack[-1].size if stack else 0
            offset = -(-top // alignment) * alignment
            of_size[size].append(len(stack))
            stack.append(_Placed(offset, size, int(problem.end[row])))
        offsets[row] = offset
    return offsets


@register("nntrainer_v3")
def nntrainer_v3(problem: Problem, options: PackingOptions) -> IntArray:
    """Place by NNTrainer's planner V3: first fit in the order of start.

    Raises
    ------
    UnsupportedConstraintError
        A block is fixed.
    """
    offsets = np.zeros(len(problem), dtype=np.int64)
    alive: list[tuple[int, int]] = []  # first byte and the one after the last, by rising address
    ends: list[tuple[int, tuple[int, int]]] = []  # a heap
    for row in _in_order(problem, "nntrainer_v3"):
        start, size, alignment = int(problem.start[row]), int(problem.size[row]), int(problem.alignment[row])
        while ends and ends[0][0] <= start:
            _, over = heappop(ends)
            del alive[bisect_left(alive, over)]
        offset = 0
        for low, high in alive:
            if offset + size <= low:
                break
            offset = -(-high // alignment) * alignment
        placed = offset, offset + size
        insort(alive, placed)
        heappush(ends, (int(problem.end[row]), placed))
        offsets[row] = offset
    return offsets


def _in_order(problem: Problem, solver: str) -> list[int]:
    """Return the rows that have bytes, by start, then end, then row."""
    fixed = np.flatnonzero(problem.fixed >= 0)
    if len(fixed):
        raise UnsupportedConstraintError(f"{solver} cannot honour fixed offsets; block {fixed[0]} has one")
    rows = np.lexsort((problem.end, problem.start))
    found: list[int] = rows[problem.size[rows] > 0].tolist()
    return found
