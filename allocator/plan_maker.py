"""Has a lane's plans made, on the planner's thread, and makes entries of the cache of them.

What is known is taken down when a job is submitted; the job itself looks at nothing that the program changes. It does
not raise: whatever fails, the old plan or upstream goes on serving.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..planning.shared import SharedPlans
from ..profiler import StepLog
from .cache import Entry, PlanCache
from .planner import let_others_run

if TYPE_CHECKING:
    from ..packing.problem import IntArray
    from ..planning.making import Options
    from ..planning.store import PlanStore

DOUBTED = 4
"""Times in a row that a plan is succeeded before frees that a record lacks are believed."""

ELSEWHERE = 0.5
"""Share of an arena; where upstream has to hold more of a plan's blocks than this, another arena takes its place."""


class Memory(Protocol):
    """What is asked of a pool's compiled half."""

    def arena_bytes(self, lane: int) -> int:
        """Return the size of a lane's arena."""

    def stayers(self, lane: int) -> IntArray:
        """Return where blocks stay in a lane's arena that no plan knows of."""

    @property
    def grows_in_place(self) -> bool:
        """Whether arenas do."""

    @property
    def bottom_last(self) -> bool:
        """Whether an arena may have less memory than its plans need for a step, its beginning last."""


@dataclass(frozen=True)
class Record:
    """A step that may become a plan: its key, its log, the plan that it departed from, whether it keeps its results."""

    key: Hashable
    log: StepLog
    departed_from: Entry | None
    keeps_results: bool = False


@dataclass(frozen=True)
class Solved:
    """What the planner made of a record: an entry for the cache (None: nothing), and the one whose place it takes.

    An entry that takes its own place taught nothing, or needs another arena. It may be one that is in the cache.

    Attributes
    ----------
    arena_bytes
        To reserve at least.
    """

    sequence: int
    entry: Entry | None = None
    replaces: Entry | None = None
    arena_bytes: int = 0


class PlanMaker:
    """Makes one lane's plans.

    Parameters
    ----------
    backend, lane
        What serves the requests, and its number for the lane.
    cache
        The lane's plans.
    shared
        Plans of all lanes.
    alignment, solver
        Of the plans: bytes, and the name of the packing solver.
    store
        What is asked before anything is packed; None: nothing.

    Attributes
    ----------
    store
        As above; for the jobs to come.
    packed
        Plans for which something had to be packed, those that came to nothing included.
    """

    def __init__(
        self,
        backend: Memory,
        lane: int,
        cache: PlanCache,
        shared: SharedPlans,
        *,
        alignment: int,
        solver: str,
        store: PlanStore | None = None,
    ) -> None:
        self._backend, self._lane, self._cache, self._shared = backend, lane, cache, shared
        self._alignment, self._solver, self.store = alignment, solver, store
        self.packed = 0

    def _job(self, sequence: int, make: Callable[[Options], Solved]) -> Callable[[], Solved]:
        """Return a job that does not raise, and counts what it packs.

        Called with the lane's mutex, which a fork waits for: imports are whole then.
        """
        from ..planning.making import Options
        from ..planning.packer import Packer

        if self.store is not None:
            from ..planning import store_packing  # noqa: F401

        packer = Packer(self.store)
        options = Options(self._alignment, self._solver, let_others_run, packer)

        def job() -> Solved:
            try:
                return make(options)
            except Exception:
                return Solved(sequence)
            finally:
                self.packed += packer.packed > 0

        return job

    def solving(self, sequence: int, record: Record, following: StepLog) -> Callable[[], Solved]:
        """Return the job of planning a record beside the plans that there are now."""
        from ..planning.making import Task, plan_record

        old = record.departed_from
        variants = self._cache.variants(record.key)
        task = Task(
            record.log,
            record.log.alone() if record.keeps_results else following,
            None if old is None else old.plan,
            [entry.plan for entry in variants],
            # A step that keeps its results leaves nothing in the arena, so its plan has nothing to agree on.
            () if record.keeps_results else [entry.plan for entry in self._cache.entries()],
            self._backend.arena_bytes(self._lane),
            self._backend.stayers(self._lane),
            self._backend.grows_in_place,
            bottom_last=self._backend.bottom_last,
            doubted=record.departed_from is not None and record.departed_from.standing.revisions < DOUBTED,
        )

        def solve(options: Options) -> Solved:
            made = plan_record(task, self._shared, options)
            if made.plan is None:
                return Solved(sequence)
            if record.keeps_results and made.plan is not made.replaces:
                self._shared.offer(record.key, made.plan)
            known = variants if old is None else [old, *variants]
            replaces = next((entry for entry in known if entry.plan is made.replaces), None)
            if made.plan is made.replaces:
                return Solved(sequence, replaces, replaces)
            there = next((entry for entry in variants if entry.plan is made.plan), None)
            if there is not None:
                return Solved(sequence, there, replaces)
            return Solved(sequence, self._cache.entry(record.key, made.plan), replaces)

        return self._job(sequence, solve)

    def placing_anew(self, sequence: int, old: Entry, stayers: IntArray) -> Callable[[], Solved]:
        """Return the job of placing a plan again, around what stays in its way.

        Where the arena is too small for that, and cannot grow, another one takes its place if so much of the plan is
        served by upstream that this hardly needs more memory.
        """
        from ..planning.co_placement import obstructed_bytes, place_around

        neighbours = [entry.plan for entry in self._cache.entries() if entry is not old]
        arena_bytes = self._backend.arena_bytes(self._lane)
        limit = None if self._backend.grows_in_place else arena_bytes

        def place(options: Options) -> Solved:
            plan = place_around(
                old.plan,
                stayers,
                neighbours,
                arena_bytes=limit,
                planner=options.solver,
                packer=options.packer,
            )
            if plan is None and obstructed_bytes(old.plan, stayers) <= ELSEWHERE * arena_bytes:
                return Solved(sequence, old, old)
            if plan is None:
                return Solved(sequence, old, old, arena_bytes + self._alignment)
            return Solved(sequence, self._cache.entry(old.key, plan), old)

        return self._job(sequence, place)
