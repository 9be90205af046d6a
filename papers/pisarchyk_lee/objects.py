"""Shared objects: buffers that blocks use one after the other, instead of offsets in one arena.

::

    offsets           shared objects: an object is as large as its largest block, and blocks in it do not
    | bb  cc          | object 0   aa bbb   c       overlap in time. Wanted: the least sum of the objects' sizes
    |aaaa cc          | object 1     dddd eee
    +--------> clock  +----------------------> clock

It is what remains where memory cannot be cut at will (textures; one allocation each). Every solution is a placement
as well: `SharedObjects.offsets` lays the objects end to end. So the strategies are packing solvers by their names.

Lower bound: at each moment, sort the live sizes; the k-th largest object is at least as large as the k-th largest
live block, at every moment. The sum of these *positional maxima* over k is what any solution needs.

Pisarchyk & Lee 2020, section 4 (arXiv 2001.03288): by size, by size improved, by breadth. Lee et al. 2019 (arXiv
1907.01989): in order, min-cost flow. Where the papers leave a tie open, the first object in order of creation and the
first row win; "by size" takes the first suitable object, not the smallest, because only this gives the figures of their
table 1 (objects come in falling size, so the first is the largest).

Gaps are honoured (in a window, the whole block counts as occupied); alignment is, in `SharedObjects.offsets`. Fixed
offsets and ties between blocks mean nothing here.

O(n * objects * log n); the flow is an assignment between n blocks, O(n^3) at worst.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from ...common.errors import MissingDependencyError, UnsupportedConstraintError
from ...packing.orders import by_size
from ...packing.problem import IntArray, Problem
from ...packing.registry import PackingOptions, Solver, register
from .orders import by_breadth, by_start


@dataclass(frozen=True, eq=False)
class SharedObjects:
    """Which block uses which object.

    Attributes
    ----------
    object
        Number of each block's object, int64 (n,).
    size
        Bytes of each object, int64 (m,).
    lower_bound
        No solution of this problem has a smaller total.
    """

    object: IntArray
    size: IntArray
    lower_bound: int

    @property
    def total(self) -> int:
        """Bytes of all objects."""
        return int(self.size.sum())

    def offsets(self, problem: Problem) -> IntArray:
        """Lay the objects end to end: offsets of the blocks, (n,), each aligned."""
        offsets = np.zeros(len(problem), dtype=np.int64)
        top = 0
        for k in range(len(self.size)):
            mine = np.flatnonzero(self.object == k)
            alignment = int(np.lcm.reduce(problem.alignment[mine]))
            offsets[mine] = -(-top // alignment) * alignment
            top = int((offsets[mine] + problem.size[mine]).max())
        return offsets


def lower_bound(problem: Problem) -> int:
    """Sum of the positional maxima: bytes that any set of shared objects needs."""
    return sum(positional_maxima(problem))


def positional_maxima(problem: Problem) -> list[int]:
    """For each k, the greatest over time of the k-th largest live size; falling."""
    pieces = problem.pieces()
    size = np.repeat(problem.size, np.diff(pieces.first)).tolist()
    start, end = pieces.start.tolist(), pieces.end.tolist()
    leaving = np.argsort(pieces.end, kind="stable").tolist()
    live: list[int] = []  # negative sizes, rising
    most: list[int] = []
    gone = 0
    for k in np.argsort(pieces.start, kind="stable").tolist():
        while end[leaving[gone]] <= start[k]:
            del live[bisect_left(live, -size[leaving[gone]])]
            gone += 1
        live.insert(bisect_left(live, -size[k]), -size[k])
        most += [0] * (len(live) - len(most))
        most[: len(live)] = [max(a, -b) for a, b in zip(most, live, strict=False)]
    return most


def objects_by_size(problem: Problem) -> SharedObjects:
    """Share by Pisarchyk & Lee's greedy by size: the largest block first, into the first object free for it."""
    table = _Table(problem)
    for i in by_size(problem).tolist():
        free = (k for k in range(len(table.size)) if table.is_free(k, i))
        table.put(i, next(free, None))
    return table.result()


def objects_by_size_improved(problem: Problem) -> SharedObjects:
    """Share by size in stages, or as `objects_by_size` where that takes less; in a stage the closest in time go first.

    A stage has the sizes from one positional maximum, inclusive, down to the next. Its blocks could all take the same
    objects, so size does not matter there: of all blocks and objects, the pair with the least idle time between goes
    together. By stages alone a solution may be larger than by size, which the paper rules out.
    """
    table = _Table(problem)
    order = by_size(problem).tolist()
    for floor in [*sorted(set(positional_maxima(problem)), reverse=True), -1]:
        stage = [i for i in order if problem.size[i] > floor]
        order = order[len(stage) :]
        while stage:
            pairs = [
                (table.idle(k, i), at, k)
                for at, i in enumerate(stage)
                for k in range(len(table.size))
                if table.is_free(k, i)
            ]
            if pairs:
                _, at, chosen = min(pairs)
                table.put(stage.pop(at), chosen)
            else:
                table.put(stage.pop(0), None)
    return min(table.result(), objects_by_size(problem), key=lambda shared: shared.total)


def objects_by_breadth(problem: Problem) -> SharedObjects:
    """Share by Pisarchyk & Lee's greedy by breadth: the widest moment first, into the object that fits best."""
    return _best_fitting(problem, by_breadth(problem))


def objects_in_order(problem: Problem) -> SharedObjects:
    """Share by Lee et al.'s greedy: in the order of allocation, into the object that fits best."""
    return _best_fitting(problem, by_start(problem))


def objects_min_cost_flow(problem: Problem) -> SharedObjects:
    """Share by Lee et al.'s min-cost flow: each block follows another one or opens an object.

    Following costs what the block is larger by than its predecessor, opening costs its size; every block has one
    successor at most. With unit capacities that flow is an assignment.

    Raises
    ------
    MissingDependencyError
        SciPy is not installed.
    UnsupportedConstraintError
        A block has gaps: it would not follow another one as a whole.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise MissingDependencyError(
            "SciPy is not installed; objects_min_cost_flow needs it: pip install '.[flow]' in stowplan's clone"
        ) from None
    table = _Table(problem)
    if len(problem.gaps):
        raise UnsupportedConstraintError("objects_min_cost_flow cannot honour gaps; expected none")
    n, size = len(problem), problem.size
    never = float(size.sum()) + 1.0
    follows = problem.end[:, None] <= problem.start[None, :]
    growth = np.maximum(size[None, :] - size[:, None], 0).astype(np.float64)
    cost = np.full((2 * n, n), never)
    cost[:n] = np.where(follows, growth, never)
    cost[n + np.arange(n), np.arange(n)] = size
    source, follower = linear_sum_assignment(cost)
    before = np.full(n, -1, dtype=np.int64)
    before[follower] = np.where(source < n, source, -1)
    for i in by_start(problem).tolist():
        table.put(i, None if before[i] < 0 else int(table.object[before[i]]))
    return table.result()


strategies: Mapping[str, Callable[[Problem], SharedObjects]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            objects_by_size,
            objects_by_size_improved,
            objects_by_breadth,
            objects_in_order,
            objects_min_cost_flow,
        )
    }
)
"""Every strategy by its name, read-only."""


MOST_BLOCKS = 1_000
"""Blocks that a strategy takes as a packing solver; the slowest takes about a second."""


def _solver(strategy: Callable[[Problem], SharedObjects]) -> Solver:
    def solve(problem: Problem, options: PackingOptions) -> IntArray:
        if len(problem) > MOST_BLOCKS:
            raise UnsupportedConstraintError(f"{len(problem):,} blocks; shared objects take {MOST_BLOCKS:,}")
        return strategy(problem).offsets(problem)

    return solve


for _name, _strategy in strategies.items():
    register(_name)(_solver(_strategy))


class _Table:
    """Objects under construction: for each, the disjoint intervals in which it is used, rising."""

    def __init__(self, problem: Problem) -> None:
        for rule, present in (("fixed offsets", (problem.fixed >= 0).any()), ("ties", problem.constrained)):
            if present:
                raise UnsupportedConstraintError(f"shared objects cannot honour {rule} between blocks")
        first, start, end = (c.tolist() for c in problem.pieces()[:3])
        self._intervals = [list(zip(start[a:b], end[a:b], strict=True)) for a, b in pairwise(first)]
        self._problem = problem
        self._used: list[list[tuple[int, int]]] = []
        self.size: list[int] = []
        self.object = np.full(len(problem), -1, dtype=np.int64)

    def is_free(self, k: int, i: int) -> bool:
        """Whether object k is unused whenever block i is alive."""
        used = self._used[k]
        for start, end in self._intervals[i]:
            at = bisect_left(used, (start, end))
            if (at < len(used) and used[at][0] < end) or (at and used[at - 1][1] > start):
                return False
        return True

    def idle(self, k: int, i: int) -> int:
        """Ticks between block i and the nearest use of object k, which is free for it."""
        used, least = self._used[k], 2**63
        for start, end in self._intervals[i]:
            at = bisect_left(used, (start, end))
            if at < len(used):
                least = min(least, used[at][0] - end)
            if at:
                least = min(least, start - used[at - 1][1])
        return least

    def put(self, i: int, k: int | None) -> None:
        """Let block i use object k, or a new one."""
        if k is None:
            k = len(self.size)
            self.size.append(0)
            self._used.append([])
        self._used[k] = sorted(self._used[k] + self._intervals[i])
        self.size[k] = max(self.size[k], int(self._problem.size[i]))
        self.object[i] = k

    def result(self) -> SharedObjects:
        return SharedObjects(self.object, np.array(self.size, dtype=np.int64), lower_bound(self._problem))


def _best_fitting(problem: Problem, order: IntArray) -> SharedObjects:
    """Each block into the smallest free object that is large enough, else into the largest, which grows."""
    table = _Table(problem)
    for i in order.tolist():
        size = int(problem.size[i])
        free = [k for k in range(len(table.size)) if table.is_free(k, i)]
        enough = [k for k in free if table.size[k] >= size]
        if enough:
            table.put(i, min(enough, key=lambda k: (table.size[k], k)))
        else:
            table.put(i, max(free, key=lambda k: (table.size[k], -k), default=None))
    return table.result()
