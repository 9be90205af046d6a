"""When to record, when to plan, when to replay: the states of a pool, for every backend.

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
departed from (realign.py), one record at a time and as far as the memory is worth it. A plan that is succeeded again
and again is given twice as many steps each time, a merged one every `PATIENCE` times.

Nothing here raises because of what the program did: a plan is an optimization.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import PoolError, ProfileError
from ..packing.registry import find
from ..profiler import Profile, StepLog
from ..profiler.steps import profile_step
from ._core import CorePlan, PlanSet
from .cache import Entry, PlanCache
from .neighbours import settle
from .plan import Plan, largest, make_plan, same_structure
from .planner import Planner, let_others_run
from .realign import merge
from .saved import load_plans, save_plans
from .stats import Stats

UNPROVEN = 2
"""Plans that may be made without having been replayed in full, before a record has to be seen twice."""

LONGEST_BACK_OFF = 10
"""A plan that fails again and again may be succeeded every 2**10 steps."""

PATIENCE = 16
"""Times that a merged plan is succeeded before it is given more steps: it learns from each."""

WORTH = 1.04
"""Bytes reserved for each byte ever alive, up to which a merged plan may go."""

REMEMBERED = 64
"""Steps whose request sequence is remembered, to see that a record comes again."""


class Backend(Protocol):
    """The compiled half of a pool: a replay core with memory behind it."""

    def begin_step(self, plan: CorePlan | None, others: PlanSet) -> bool:
        """Start a step in this thread that is expected to follow `plan`; False where one is running."""

    def end_step(self) -> tuple[npt.NDArray[np.void], bool, bool, int]:
        """Return (events, complete, clean, tag of the plan followed)."""

    def set_interrupted(self, interrupted: bool) -> None:
        """Send this thread's requests upstream, if the running step is its own."""

    def set_timestamps(self, on: bool) -> None:
        """Note the wall clock of events, and keep the log even of a clean step; or neither."""

    def reserve(self, size: int) -> bool:
        """Make the arena at least this large; False where upstream has no memory for it."""

    def counters(self) -> dict[str, Any]:
        """Return the core's counters."""


@dataclass(frozen=True)
class Record:
    """A step that may become a plan: its key, its log, and the plan that it departed from."""

    key: Hashable
    log: StepLog
    departed_from: Entry | None


@dataclass(frozen=True)
class Solved:
    """What the planner made of a record: an entry for the cache (None: nothing), and the one whose place it takes.

    An entry that takes its own place taught nothing.
    """

    sequence: int
    entry: Entry | None = None
    replaces: Entry | None = None


class Controller:
    """The states of a pool.

    Parameters
    ----------
    backend
        What serves the requests.
    warmup
        Steps to let pass before recording.
    alignment
        Bytes; of every planned offset.
    planner
        Name of the packing solver.
    max_plans
        Plans to keep.

    Raises
    ------
    PoolError
        `warmup` is negative, `max_plans` is not positive, or either is not an integer.
    UnknownSolverError
        There is no such solver.
    """

    def __init__(
        self, backend: Backend, *, warmup: int, alignment: int, planner: str, max_plans: int
    ) -> None:
        self._warmup = _count("warmup", warmup, 0, "a number of steps")
        if planner != "auto":
            find(planner)
        self._backend = backend
        self._alignment = alignment
        self._solver = planner
        self._cache = PlanCache(_count("max_plans", max_plans, 1, "a number of plans"))
        self._planner: Planner[Solved] = Planner()
        self._mutex = threading.Lock()
        self._interruptions = threading.local()
        self._key: Hashable = None
        self._record: Record | None = None
        self._seen: deque[int] = deque(maxlen=REMEMBERED)
        self._in_work: set[int] = set()
        self._unproven = 0
        self._steps = 0
        self._latest: Plan | None = None
        self._plans = self._reoptimizations = 0

    # ------------------------------------------------------------------------------------------------------- steps

    def begin_step(self, key: Hashable) -> None:
        """Start a step in this thread.

        Raises
        ------
        PoolError
            A step is running already, or this thread is in an interrupted part.
        """
        if self._interrupted:
            raise PoolError("a step cannot begin in an interrupted part: resume first")
        with self._mutex:
            contextvars.Context().run(self._take_up)
            self._backend.reserve(self._cache.arena_bytes)  # it may have been given back
            likely, variants = self._cache.likely(key)
            if not self._backend.begin_step(likely, variants):
                raise PoolError("a step is running already: steps do not nest")
            self._backend.set_timestamps(likely is None or self._record is not None)
            self._key = key

    def end_step(self, failed: bool) -> None:
        """End the step; `failed` where an exception left it, so that it says nothing about the next.

        Runs in an empty context, in which NumPy's handler is the default one: the arrays that planning needs are no
        business of the pool's.
        """
        with self._mutex:
            contextvars.Context().run(self._end_step, failed)

    def _end_step(self, failed: bool) -> None:
        events, complete, clean, tag = self._backend.end_step()
        followed = self._cache.get(tag)
        if followed is not None:
            self._cache.follow(followed)
            if clean:
                self._unproven = followed.revisions = 0
                followed.proven = True
        usable = complete and not failed
        self._steps += 1
        record, self._record = self._record, None
        if record is None and (clean or not usable):
            return
        log = StepLog(events)
        if record is not None and complete:
            self._learn(record, log)
            if record.key == self._key and record.log.equals(log):
                return
        if self._warmup > 0:
            self._warmup -= usable
        elif usable and not clean and self._is_due(followed):
            self._record = Record(self._key, log, followed)

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
            if record.departed_from is not None and not self._in_work:
                self._in_work.add(sequence)
                old = record.departed_from
                self._planner.submit(lambda: self._merge(sequence, old, record, following))
            return
        neighbours = [entry.plan for entry in self._cache.entries()]
        arena_bytes = self._backend.counters()["arena_bytes"]
        self._unproven += 1
        self._in_work.add(sequence)
        variants = self._cache.variants(record.key)
        self._planner.submit(
            lambda: self._solve(sequence, record, following, variants, neighbours, arena_bytes)
        )

    def _solve(
        self,
        sequence: int,
        record: Record,
        following: StepLog,
        variants: list[Entry],
        neighbours: list[Plan],
        arena_bytes: int,
    ) -> Solved:
        """Make a plan, on the planner's thread."""
        try:
            profile = profile_step(record.log, following)
            let_others_run()
            if any(
                entry.plan.profile.same_blocks(profile)
                for entry in variants
                if entry is not record.departed_from
            ):
                return Solved(sequence)  # it was planned while this record was waiting
            replaces = _succeeded(record.departed_from, profile)
            if replaces is not None:
                if _teaches_nothing(replaces.plan.profile, profile):
                    return Solved(sequence, replaces, replaces)
                profile = largest(replaces.plan.profile, profile)
                neighbours = [plan for plan in neighbours if plan is not replaces.plan]
            alone = make_plan(profile, alignment=self._alignment, planner=self._solver)
            let_others_run()
            plan = settle(alone, neighbours, arena_bytes=arena_bytes, planner=self._solver)
            let_others_run()
            return Solved(sequence, self._cache.entry(record.key, plan), replaces)
        except Exception:
            return Solved(sequence)  # upstream, or the old plan, goes on serving

    def _merge(self, sequence: int, old: Entry, record: Record, following: StepLog) -> Solved:
        """Make a plan for a record and for the steps that another plan stands for, on the planner's thread."""
        try:
            merged = merge(old.plan.profile, old.plan.merged, record.log, following)
            if merged is None:
                return Solved(sequence, old, old)
            quick = "best_fit" if self._solver == "auto" else self._solver  # the next record will succeed it
            plan = make_plan(merged[0], alignment=self._alignment, planner=quick)
            let_others_run()
            counters = self._backend.counters()
            if plan.arena_bytes + counters["upstream_bytes"] > WORTH * counters["peak_live_bytes"]:
                return Solved(sequence, old, old)
            return Solved(sequence, self._cache.entry(record.key, replace(plan, merged=merged[1])), old)
        except Exception:
            return Solved(sequence)  # upstream, or the old plan, goes on serving

    def _take_up(self) -> None:
        """Put the plans that are ready into use."""
        for solved in self._planner.collect():
            self._in_work.discard(solved.sequence)
            entry, old = solved.entry, solved.replaces
            if entry is None or not self._backend.reserve(entry.plan.arena_bytes):
                continue
            if old is not None:
                entry.revisions = old.revisions + 1
            if entry is old:
                continue
            self._cache.add(entry, replaces=old)
            if entry.plan.merged is not None:
                self._cache.drop_unproven(entry)
            self._latest = entry.plan
            self._plans += 1
            self._reoptimizations += old is not None

    def wait(self, timeout: float | None) -> bool:
        """Wait until the plans being made are ready for the next step; return whether they are."""
        ready = self._planner.wait(timeout)
        with self._mutex:
            contextvars.Context().run(self._take_up)
        return ready

    # ------------------------------------------------------------------------------------------------------- files

    def save(self, path: str | os.PathLike[str], backend: str) -> None:
        """Write the plans in use; see `save_plans`."""
        with self._mutex:
            plans = [(entry.key, entry.plan) for entry in reversed(self._cache.entries())]
        contextvars.Context().run(save_plans, path, plans, backend, self._alignment)

    def load(self, path: str | os.PathLike[str], backend: str) -> None:
        """Take plans from a file into use, in place of a warm-up; see `load_plans`.

        Raises
        ------
        PoolError
            There is no memory for their arena.
        """
        plans = contextvars.Context().run(load_plans, path, backend, self._alignment)
        if not self._backend.reserve(max((plan.arena_bytes for _, plan in plans), default=0)):
            raise PoolError(f"no memory for the arena that the plans of {os.fspath(path)} need")
        with self._mutex:
            for key, plan in plans:
                self._cache.add(self._cache.entry(key, plan))
                self._latest = plan
            self._warmup = 0

    # ----------------------------------------------------------------------------------------------- interruptions

    @property
    def _interrupted(self) -> int:
        return getattr(self._interruptions, "depth", 0)

    def interrupt(self) -> None:
        """Enter a part of the program, in this thread, whose requests go upstream and stay out of the record."""
        self._interruptions.depth = self._interrupted + 1
        self._backend.set_interrupted(True)

    def resume(self) -> None:
        """Leave the innermost interrupted part.

        Raises
        ------
        PoolError
            This thread is not in one.
        """
        if not self._interrupted:
            raise PoolError("resume without interrupt: this thread is not in an interrupted part")
        self._interruptions.depth -= 1
        if not self._interrupted:
            self._backend.set_interrupted(False)

    # ------------------------------------------------------------------------------------------------------ answers

    def profile(self) -> Profile:
        """Return the profile of the last planned step.

        Raises
        ------
        ProfileError
            There is no plan yet.
        """
        return self.plan().profile

    def plan(self) -> Plan:
        """Return the plan that was made last.

        Raises
        ------
        ProfileError
            There is no plan yet.
        """
        if self._latest is None:
            raise ProfileError(
                "no plan yet: no step has passed after the warm-up and been followed by another"
            )
        return self._latest

    def stats(self) -> Stats:
        """Return a snapshot of the pool's counts."""
        counters = self._backend.counters()
        requests = dict(counters["requests"])
        replayed = requests.pop("replayed")
        latest = self._latest
        return Stats(
            replayed=replayed,
            upstream=sum(requests.values()) - counters["guests"],
            reasons={name: n for name, n in requests.items() if n},
            plans=self._plans,
            reoptimizations=self._reoptimizations,
            reserved_bytes=counters["arena_bytes"] + counters["upstream_bytes"],
            lower_bound=0 if latest is None else latest.placement.lower_bound,
            **{name: counters[name] for name in _PASSED_ON},
        )


_PASSED_ON = (
    "guests",
    "smaller",
    "missing",
    "arena_bytes",
    "live_bytes",
    "peak_live_bytes",
    "peak_reserved_bytes",
)


def _count(name: str, value: object, least: int, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PoolError(f"{name} is {value!r}; expected {what}, {least} or more")
    return value


def _succeeded(entry: Entry | None, profile: Profile) -> Entry | None:
    """Return the plan that a record departed from, if the record is its successor rather than another variant."""
    if entry is None:
        return None
    old = entry.plan.profile
    return entry if same_structure(old, profile) or np.array_equal(old.size, profile.size) else None


def _teaches_nothing(old: Profile, new: Profile) -> bool:
    """Whether a step that was not served from its plan throughout had no other reason than what stood in its way."""
    return same_structure(old, new) and bool((new.size <= old.size).all())
