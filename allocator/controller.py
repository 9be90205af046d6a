"""When to record, when to plan, when to replay: the states of one lane of a pool, for every backend.

::

    warm-up ──> record ──> confirm ──> replay ──┐
                  ^          │           ^      │ a step that was not clean
                  └──────────┘           │      v
                  a step that failed     └─── observe: the plan goes on serving what it can; the step's log is a
                                              new record, and the step after it confirms it

*Warm-up* steps are not representative (lazy parameters, optimizer state). *Record* keeps a step's log. *Confirm*: the
step that follows, the same or another one, shows where the record's wrapped blocks end; then the plan is made, off the
caller's thread, and taken up at the next step boundary. From then on steps are *replayed*. A step that was not served
from its plan throughout is *observed*: the plan is not given up, but its log is a new record.

A new record becomes, by its structure (what is asked for and freed, in which order):

- the structure of the plan that it departed from, with larger sizes: the plan's successor, with the element-wise
  maximum of the sizes; or the same requests with other frees: its successor as well (reoptimization);
- another structure: one more variant of its key.

A program that never repeats would bring a new plan with every step. So, as long as the last plans made were never
replayed in full, a record has to be seen twice before it is planned; until then it is *merged* with the plan that it
departed from (planning/merging), one record at a time and as far as the memory is worth it. Before the first time, the
backend is asked for smaller requests as well, which say where in a loop a step is; then all begins anew. A plan that
is succeeded again and again is given twice as many steps each time, a merged one every `PATIENCE` times.

Nothing here raises because of what the program did: a plan is an optimization.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..errors import PoolError
from ..packing.registry import find
from ..planning import Plan
from ..planning.making import overlap_matters
from ..planning.shared import SharedPlans
from ..profiler import StepLog
from ._core import CorePlan, PlanSet
from .cache import Entry, PlanCache
from .plan_maker import Memory, PlanMaker, Record, Solved
from .planner import Planner

UNPROVEN = 2
"""Plans that may be made without having been replayed in full, before a record has to be seen twice."""

LONGEST_BACK_OFF = 10
"""A plan that fails again and again may be succeeded every 2**10 steps."""

PATIENCE = 4
"""Times that a merged plan is succeeded before it is given more steps: it learns from each."""

REMEMBERED = 64
"""Steps whose request sequence is remembered, to see that a record comes again."""

Outcome = tuple[npt.NDArray[np.void], bool, bool, int]
"""Of a lane's part of a step: (events, complete, clean, tag of the plan followed)."""


class Backend(Memory, Protocol):
    """The compiled half of a pool: lanes with memory behind them (allocator/core/lanes.hpp)."""

    def begin_step(self, lane: int, plan: CorePlan | None, others: PlanSet) -> None:
        """Start a lane's part of a step that is expected to follow `plan`."""

    def end_step(self, lane: int) -> Outcome:
        """Return what is to be said of a lane's part of the step."""

    def expect(self, lane: int, plan: CorePlan | None, others: PlanSet, wanted: bool) -> None:
        """Say what a lane's steps that are found may follow, and whether those that do so are to be heard of."""

    def set_timestamps(self, lane: int, on: bool) -> None:
        """Note the wall clock of a lane's events, and keep the log even of a clean step; or neither."""

    def reserve(self, lane: int, size: int) -> bool:
        """Make a lane's arena at least this large; False where upstream has no memory for it."""

    @property
    def small(self) -> int:
        """Requests below this many bytes are not planned."""

    def refine(self) -> bool:
        """Have smaller requests planned as well; whether there are any that are not."""


class Controller:
    """The states of one lane.

    Parameters
    ----------
    backend
        What serves the requests.
    lane
        Its number for the lane.
    shared
        Plans of all lanes.
    warmup
        Steps to let pass before recording.
    alignment
        Bytes; of every planned offset.
    planner
        Name of the packing solver.
    max_plans
        Plans to keep.
    auto_step
        Whether steps are found. There is no warm-up then: what is found is hot.

    Raises
    ------
    PoolError
        `warmup` is negative, `max_plans` is not positive, or either is not an integer.
    UnknownSolverError
        There is no such solver.

    Attributes
    ----------
    key
        Of the running step, or of the last one.
    lane
        The backend's number for the lane.
    latest
        The plan that was made last, or None.
    plans, reoptimizations
        Plans made, and of these the ones that took another's place.
    """

    def __init__(
        self,
        backend: Backend,
        lane: int,
        shared: SharedPlans,
        *,
        warmup: int,
        alignment: int,
        planner: str,
        max_plans: int,
        auto_step: bool = False,
    ) -> None:
        self._warmup = _count("warmup", warmup, 0, "a number of steps")
        self._auto_step = auto_step
        self._overlaps = False  # the last plan leaves out what may find room in two steps taken for one
        if auto_step:
            self._warmup = 0
        if planner != "auto":
            find(planner)
        self._backend = backend
        self.lane = lane
        self._cache = PlanCache(_count("max_plans", max_plans, 1, "a number of plans"))
        self._maker = PlanMaker(backend, lane, self._cache, shared, alignment=alignment, solver=planner)
        self._planner: Planner[Solved] = Planner()
        self._mutex = threading.Lock()
        self.key: Hashable = None
        self._record: Record | None = None
        self._seen: deque[int] = deque(maxlen=REMEMBERED)
        self._in_work: set[int] = set()
        self._unproven = 0
        self._steps = 0
        self.latest: Plan | None = None
        self.plans = self.reoptimizations = 0

    # ------------------------------------------------------------------------------------------------------- steps

    def begin_step(self, key: Hashable) -> None:
        """Start the lane's part of a step."""
        with self._mutex:
            if self._auto_step:  # not any more
                self._auto_step, self._record = False, None
            likely, variants = contextvars.Context().run(self._prepare, key)
            self._backend.begin_step(self.lane, likely, variants)
            self._backend.set_timestamps(self.lane, likely is None or self._record is not None)
            self.key = key

    def _prepare(self, key: Hashable) -> tuple[CorePlan | None, PlanSet]:
        """Return the plan that the coming step is expected to follow, and all that it may."""
        self._take_up()
        self._backend.reserve(self.lane, self._cache.arena_bytes)  # it may have been given back
        return self._cache.likely(key)

    def end_step(self, failed: bool) -> None:
        """End the step; `failed` where an exception left it, so that it says nothing about the next.

        Runs in an empty context, in which NumPy's handler is the default one: the arrays that planning needs are no
        business of the pool's.
        """
        with self._mutex:
            contextvars.Context().run(self._end_step, failed)

    def _end_step(self, failed: bool) -> None:
        self._judge(self._backend.end_step(self.lane), failed)

    def collect(self, outcomes: Sequence[Outcome]) -> None:
        """Judge steps that were found and have ended, and say what the next ones may follow; on any thread.

        Plans are taken up as well: little is alive beside a new arena when a step has just ended.
        """
        with self._mutex:
            contextvars.Context().run(self._collect, outcomes)

    def _collect(self, outcomes: Sequence[Outcome]) -> None:
        if not self._auto_step:
            return
        for outcome in outcomes:
            self._judge(outcome, failed=False)
        likely, variants = self._prepare(None)
        timestamps = likely is None or self._record is not None or self._overlaps
        self._backend.expect(self.lane, likely, variants, timestamps or self._planner.busy)
        self._backend.set_timestamps(self.lane, timestamps)

    def _judge(self, outcome: Outcome, failed: bool) -> None:
        """Learn from a step that has ended."""
        events, complete, clean, tag = outcome
        followed = self._cache.get(tag)
        if followed is not None:
            self._cache.follow(followed)
            if clean:
                self._unproven = followed.revisions = 0
                followed.proven = True
        usable = complete and not failed
        self._steps += 1
        record, self._record = self._record, None
        overlaps = self._overlaps and clean and complete
        self._overlaps &= not overlaps
        if record is None and ((clean and not overlaps) or not usable):
            return
        log = StepLog(events)
        if record is not None and complete:
            self._learn(record, log)
            if record.key == self.key and record.log.equals(log):
                return
        if self._warmup > 0:
            self._warmup -= usable
        elif usable and (overlaps or (not clean and self._is_due(followed))):
            self._record = Record(self.key, log, followed)

    def _is_due(self, entry: Entry | None) -> bool:
        """Whether a plan that did not serve a step may be succeeded now."""
        if entry is None:
            return True
        patience = 1 if entry.plan.merged is None else PATIENCE
        return self._steps % (1 << min(entry.revisions // patience, LONGEST_BACK_OFF)) == 0

    def _learn(self, record: Record, following: StepLog) -> None:
        """Have a plan made of a step, and of the one that followed it."""
        sequence = hash((record.key, record.log.requested.tobytes(), record.log.streams.tobytes()))
        repeated = sequence in self._seen or record.log.equals(following)
        self._seen.append(sequence)
        if sequence in self._in_work:
            return
        if self._unproven >= UNPROVEN and not repeated:
            old = self._in_its_place(record.departed_from)
            if old is not None and old.plan.steps == 1 and not self._in_work:
                if not self._auto_step and self._backend.refine():
                    self._start_over()
                    return
                self._in_work.add(sequence)
                self._planner.submit(self._maker.merging(sequence, old, record, following))
            return
        self._unproven += 1
        self._in_work.add(sequence)
        self._planner.submit(self._maker.solving(sequence, record, following, found=self._auto_step))

    def _start_over(self) -> None:
        """Forget the plans: from now on, steps have other requests than they know of."""
        self._cache.clear()
        self._seen.clear()
        self._unproven = 0
        self._warmup = 1  # the step that has just ended

    def _in_its_place(self, entry: Entry | None) -> Entry | None:
        """Return an entry, or, where it was succeeded in the meantime, the merged plan that stands for its key."""
        if entry is None or self._cache.get(entry.tag) is entry:
            return entry
        merged = [other for other in self._cache.variants(entry.key) if other.plan.merged is not None]
        return merged[0] if merged else None

    def _take_up(self) -> None:
        """Put the plans that are ready into use."""
        for solved in self._planner.collect():
            self._in_work.discard(solved.sequence)
            entry, old = solved.entry, solved.replaces
            if entry is None or not self._backend.reserve(self.lane, entry.plan.arena_bytes):
                continue
            if old is not None:
                entry.revisions = old.revisions + 1
            if entry is old:
                continue
            self._cache.add(entry, replaces=old)
            if entry.plan.merged is not None:
                self._cache.drop_unproven(entry)
            profile = entry.plan.profile
            alone = self._auto_step and entry.plan.merged is None
            self._overlaps = alone and overlap_matters(profile.escaped, profile.size)
            self.latest = entry.plan
            self.plans += 1
            self.reoptimizations += old is not None

    def wait(self, timeout: float | None) -> bool:
        """Wait until the plans being made are ready for the next step; return whether they are."""
        ready = self._planner.wait(timeout)
        with self._mutex:
            contextvars.Context().run(self._take_up)
        self.collect(())
        return ready

    # ------------------------------------------------------------------------------------------------------- forks

    def lock(self) -> None:
        """Keep other threads out, until `unlock`."""
        self._mutex.acquire()

    def unlock(self) -> None:
        """Let other threads in again."""
        self._mutex.release()

    def begin_anew(self, *, in_step: bool) -> None:
        """Forget what threads were doing that a fork has left behind: making plans, and, where so, the running step."""
        self._planner = Planner()
        self._in_work.clear()
        if in_step:
            contextvars.Context().run(self._backend.end_step, self.lane)
            self._record = None

    # ------------------------------------------------------------------------------------------------------- files

    def in_use(self) -> list[Entry]:
        """Return the plans in use, the least recently used first."""
        with self._mutex:
            return self._cache.entries()[::-1]

    @property
    def lower_bound(self) -> int:
        """The largest of the plans' lower bounds, in bytes; 0 where there is no plan."""
        return self._cache.lower_bound

    def take(self, plans: list[tuple[Hashable, Plan]]) -> bool:
        """Take plans into use, in place of a warm-up; False where there is no memory for their arena."""
        if not self._backend.reserve(self.lane, max(plan.arena_bytes for _, plan in plans)):
            return False
        with self._mutex:
            for key, plan in plans:
                self._cache.add(self._cache.entry(key, plan))
                self.latest = plan
            self._warmup = 0
        self.collect(())
        return True


def _count(name: str, value: object, least: int, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PoolError(f"{name} is {value!r}; expected {what}, {least} or more")
    return value
