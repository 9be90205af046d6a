"""Order and addresses together: an order of operators, and a place in one arena for all that it has alive.

::

    order        a   b   c   d             position       0   1   2   3
    bytes  |     +-------+                 h, of a        [0, 2)            alive while a and b run
           |     |   h   +---+             workspace of b     [1, 2)
           |     +---+---+ y |             y, of b            [1, 3)
           +-------------------> position

Under an order every storage is a block: alive from the position of the first operator that writes it to that of the
last that uses it, half-open. A workspace is a block of one position. Their live peak is the order's; the arena that a
packer finds for them may be larger, for packing has gaps that ordering knows nothing of.

*Search.* The order of the least peak that is found is packed. Mostly the arena is as large as the peak, and nothing
else is left to do. Else the order is changed: operators move within the room that their dependencies leave, as long as
the peak stays below the best arena, and what comes out is packed again. Each trial costs one packing.

*Proof.* An arena as large as a lower bound of all orders' peaks is the least. Where a gap is left, the integer program
of ``joint_ilp`` proves the least arena of small graphs.

OLLA (Steiner et al. 2022, arXiv 2210.12924) solves the two after one another as well (section 4.4); its released code
computes addresses and does not apply them.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import numpy as np

from ...common.errors import MissingDependencyError, ScheduleError
from ...packing import Placement, Problem, pack
from ...scheduling.graph import IntArray, StepGraph
from ...scheduling.ordering import order as find_order
from ...scheduling.ordering.problem import OrderProblem
from ...scheduling.schedule import Schedule, Way, require_valid
from ...scheduling.simulate import simulate
from .ilp import places

# Changed orders that are packed at most, and that are looked at.
MOST_TRIALS = 100
_MOST_CHANGES = 2_000
# Moves of one operator that make a changed order.
_MOVES = 6


@dataclass(frozen=True, eq=False)
class Blocks:
    """What an order has alive, as a packing problem of k blocks; in ticks that are positions in the order.

    Attributes
    ----------
    problem
        The blocks: storages by number, then workspaces by operator. Resident storages have none.
    storage
        For each block the value that has its storage, int64 (k,), -1 for a workspace.
    operator
        For each block the operator whose workspace it is, int64 (k,), -1 for a storage.
    """

    problem: Problem
    storage: IntArray
    operator: IntArray


@dataclass(frozen=True, eq=False)
class JointSolution:
    """An order of n operators, and addresses. Bytes are without the resident storages.

    Attributes
    ----------
    order
        The operators as they run, int64 (n,), read-only.
    blocks
        What is alive when, in this order.
    placement
        Where it is.
    value_offsets
        Bytes from the arena's beginning of each value's storage, int64 (m,), read-only; -1 of resident storages, and of
        those that no operator writes.
    workspace_offsets
        The same of each operator's workspace, int64 (n,); -1 where it has none.
    before
        Peak live bytes in the order recorded.
    peak
        Peak live bytes in this order.
    lower_bound
        Bytes: no order has a smaller arena.
    found_by
        ``"order"``: the first order could be packed into its peak, or nothing better was found. ``"moves"``: it was
        changed. ``"ilp"``: by the integer program.
    trials
        Orders that were packed.
    seconds
        Wall-clock time of the whole call.
    """

    order: IntArray
    blocks: Blocks
    placement: Placement
    value_offsets: IntArray
    workspace_offsets: IntArray
    before: int
    peak: int
    lower_bound: int
    found_by: str
    trials: int
    seconds: float

    @property
    def arena(self) -> int:
        """Bytes of the arena."""
        return self.placement.peak

    @property
    def optimal(self) -> bool:
        """Whether no order has a smaller arena."""
        return self.arena == self.lower_bound


def blocks_of(graph: StepGraph, order: IntArray) -> Blocks:
    """Return what is alive when the operators run in this order and nothing is recomputed.

    Parameters
    ----------
    graph
        n operators.
    order
        int64 (n,), a permutation that the dependencies allow.

    Raises
    ------
    ScheduleError
        It is not one.
    """
    order = np.asarray(order, dtype=np.int64)
    require_valid(graph, _kept(graph, order))
    return _blocks(graph, OrderProblem.of(graph), order)


def place(
    graph: StepGraph, order: IntArray, solver: str = "auto", time_limit: float | None = None
) -> Placement:
    """Place what is alive in an order; row by row as in `blocks_of`.

    Raises
    ------
    ScheduleError
        The order is not one that the dependencies allow.
    UnknownSolverError
        There is no such packing solver.
    """
    return pack(blocks_of(graph, order).problem, solver, time_limit)


def order_and_place(
    graph: StepGraph, *, alignment: int = 1, solver: str = "auto", time_limit: float | None = 10.0
) -> JointSolution:
    """Find an order, and addresses in an arena that is as small as the order's live peak, if that can be.

    Deterministic, unless the time limit cuts it short.

    Parameters
    ----------
    graph
        n operators.
    alignment
        Bytes: all sizes and workspaces are rounded up to a multiple of it, and so are all bytes of the solution.
    solver
        A name in ``stowplan.scheduling.ordering.solvers``.
    time_limit
        Wall-clock seconds, or None: no limit.

    Raises
    ------
    UnknownSolverError
        Listing the names that exist.
    ScheduleError
        The time limit or the alignment is out of range, or the graph is too large for the solver named.
    MissingDependencyError
        The solver needs an extra that is not installed.
    """
    if alignment < 1:
        raise ScheduleError(f"alignment is {alignment}; expected 1 or more bytes")
    began = time.perf_counter()
    deadline = float("inf") if time_limit is None else time.monotonic() + time_limit
    graph = _rounded(graph, alignment)
    found = find_order(graph, solver, time_limit)
    search = _Search(graph, found.order, found.lower_bound, deadline)
    search.move()
    if search.gap:
        search.prove()
    return search.solution(found.before, began)


class _Search:
    """The best order and placement so far."""

    def __init__(self, graph: StepGraph, order: IntArray, lower_bound: int, deadline: float) -> None:
        self.graph = graph
        self.problem = OrderProblem.of(graph)
        self.lower_bound, self.deadline = lower_bound, deadline
        self.found_by, self.trials = "order", 1
        self.order = order
        self.blocks = _blocks(graph, self.problem, order)
        self.placement = pack(self.blocks.problem)

    @property
    def gap(self) -> bool:
        """Whether a smaller arena may exist."""
        return self.placement.peak > self.lower_bound

    def over(self) -> bool:
        return time.monotonic() >= self.deadline

    def move(self) -> None:
        """Try other orders, each made from the best by moving operators; keep what has a smaller arena.

        Only an order whose peak is below the arena can have a smaller one. An arena as large as the first order's peak
        ends it: there ordering could not do better.
        """
        rng = random.Random(0)
        dependants = self.graph.dependants()
        before = self.graph.dependencies().rows()
        least, current = self.peak(self.order), self.order
        for _ in range(_MOST_CHANGES):
            if self.placement.peak <= least or self.trials > MOST_TRIALS or self.over():
                return
            moved = _moved(current, before, dependants, rng)
            if moved is None:
                return
            if self.peak(moved) < self.placement.peak:
                self.attempt(moved, "moves")
                current = moved
            else:
                current = self.order

    def attempt(self, order: IntArray, found_by: str) -> None:
        """Pack another order; keep it if its arena is smaller."""
        blocks = _blocks(self.graph, self.problem, order)
        placement = pack(blocks.problem)
        self.trials += 1
        if placement.peak < self.placement.peak:
            self.order, self.blocks, self.placement, self.found_by = order, blocks, placement, found_by

    def prove(self) -> None:
        """Give small graphs to the integer program, if there is one."""
        from .joint_ilp import fits, joint_ilp

        if not fits(self.problem) or self.over():
            return
        seconds = None if self.deadline == float("inf") else self.deadline - time.monotonic()
        try:
            answer = joint_ilp(self.problem, self.order, self.placement.offsets, self.lower_bound, seconds)
        except MissingDependencyError:
            return
        self.lower_bound = max(self.lower_bound, answer.lower_bound)
        if answer.order is not None:
            self.attempt(answer.order, "ilp")

    def peak(self, order: IntArray) -> int:
        return simulate(self.graph, _kept(self.graph, order)).peak

    def solution(self, before: int, began: float) -> JointSolution:
        require_valid(self.graph, _kept(self.graph, self.order))
        order = self.order.copy()
        value = np.full(self.graph.values, -1, dtype=np.int64)
        workspace = np.full(len(self.graph), -1, dtype=np.int64)
        stored = self.blocks.storage >= 0
        value[self.blocks.storage[stored]] = self.placement.offsets[stored]
        workspace[self.blocks.operator[~stored]] = self.placement.offsets[~stored]
        value = value[self.graph.storage]
        for column in (order, value, workspace):
            column.flags.writeable = False
        return JointSolution(
            order,
            self.blocks,
            self.placement,
            value,
            workspace,
            before,
            self.peak(order),
            self.lower_bound,
            self.found_by,
            self.trials,
            time.perf_counter() - began,
        )


def _blocks(graph: StepGraph, problem: OrderProblem, order: IntArray) -> Blocks:
    position = places(order)
    storages = np.unique(graph.storage[graph.writes.index])
    storages = storages[~graph.resident[storages]]
    start = np.minimum.reduceat(position[problem.writers.index], problem.writers.first[:-1])
    end = np.maximum.reduceat(position[problem.users.index], problem.users.first[:-1]) + 1
    end[problem.kept] = len(order)
    scratch = np.flatnonzero(graph.workspace > 0)
    names = [graph.name[s] for s in storages.tolist()]
    names += [f"workspace of {graph.label[i]}" for i in scratch.tolist()]
    return Blocks(
        Problem(
            np.concatenate([problem.size, graph.workspace[scratch]]),
            np.concatenate([start, position[scratch]]),
            np.concatenate([end, position[scratch] + 1]),
            id=names,
        ),
        np.concatenate([storages, np.full(len(scratch), -1)]).astype(np.int64),
        np.concatenate([np.full(len(storages), -1), scratch]).astype(np.int64),
    )


def _moved(
    order: IntArray, before: list[list[int]], dependants: list[list[int]], rng: random.Random
) -> IntArray | None:
    """Move some operators, each to another place that its dependencies leave; None where no operator has room."""
    sequence: list[int] = order.tolist()
    place = {operator: k for k, operator in enumerate(sequence)}
    movable = []
    for k, operator in enumerate(sequence):
        low = max((place[i] for i in before[operator]), default=-1) + 1
        high = min((place[i] for i in dependants[operator]), default=len(sequence)) - 1
        if low < high:
            movable.append((operator, k))
    if not movable:
        return None
    for _ in range(rng.randint(1, _MOVES)):
        operator, _ = rng.choice(movable)
        k = sequence.index(operator)
        earlier, later = set(before[operator]), set(dependants[operator])
        low = next((j + 1 for j in range(k - 1, -1, -1) if sequence[j] in earlier), 0)
        high = next((j - 1 for j in range(k + 1, len(sequence)) if sequence[j] in later), len(sequence) - 1)
        sequence.insert(rng.randint(low, high), sequence.pop(k))
    return np.array(sequence, dtype=np.int64)


def _kept(graph: StepGraph, order: IntArray) -> Schedule:
    return Schedule(order, np.full(graph.values, int(Way.KEPT), dtype=np.int64))


def _rounded(graph: StepGraph, alignment: int) -> StepGraph:
    if alignment == 1:
        return graph
    return StepGraph(
        graph.reads,
        graph.writes,
        graph.size + -graph.size % alignment,
        graph.storage,
        after=graph.after,
        phase=graph.phase,
        seconds=graph.seconds,
        workspace=graph.workspace + -graph.workspace % alignment,
        repeatable=graph.repeatable,
        resident=graph.resident,
        kept=graph.kept,
        held=graph.held,
        label=graph.label,
        name=graph.name,
    )
