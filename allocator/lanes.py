"""The steps of a pool on one device: the threads that run them, and the lanes that decide in them.

A step takes a step slot, and in it every stream has a lane (allocator/core/lanes): requests, a plan and an arena of
its own. So each lane has its own policy and plans (lane.py), as if there were no other.

A pool imports policy and reports when it is made; the pool of `stowplan run`, which may need neither, on first use.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..common.errors import PoolError, ProfileError
from ..planning.plan_dedup import SharedPlans
from ._core import Backend, Scope, runs_apart
from .planner_thread import NoThreadError
from .planning_budget import Planning, PlanningBudget

if TYPE_CHECKING:
    from ..planning import Plan
    from ..planning.plan_file import SavedPlan
    from .lane import Lane
    from .options import PlanningOptions
    from .report import Diagnosis, InUse
    from .stats import Stats


FAILURES = (MemoryError, NoThreadError)
"""What a step goes on without a plan for. All else that is raised in the program's thread may be a signal's."""


class StepSlot:
    """What one running step takes: its lanes, in the backend's order, and the mutex that guards their plans."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.lanes: list[Lane] = []


class Interrupted:
    """How many interrupted parts the process is in; see `InterruptedThread`."""

    depth = 0


class InterruptedThread(Interrupted, threading.local):
    """How many interrupted parts a thread is in."""


class Lanes:
    """A pool's steps on one device; every planned offset is a multiple of `alignment` bytes."""

    def __init__(
        self,
        backend: Backend,
        alignment: int,
        options: PlanningOptions,
        is_out_of_memory: Callable[[BaseException], bool],
    ) -> None:
        self._backend, self._options, self._is_out_of_memory = backend, options, is_out_of_memory
        most, budget = options.max_plans, PlanningBudget(options.planning_share)
        self.planning = Planning(alignment, options.solver, most, SharedPlans(most), budget)
        self._loaded: list[SavedPlan] = []
        self._mutex = threading.Lock()  # of the list of step slots
        self._step_slots: list[StepSlot] = []
        self.of_process = backend.scope == Scope.process
        self._interrupted = Interrupted() if self.of_process else InterruptedThread()
        self._diagnosis: Diagnosis | None = None
        self._refusal: str | None = None

    @property
    def backend(self) -> Any:
        """What serves the requests."""
        return self._backend

    def _step_slot(self, number: int, lanes: list[int]) -> StepSlot:
        """Return a step slot that has these lanes; some of them may be new."""
        if number < len(self._step_slots) and len(self._step_slots[number].lanes) == len(lanes):
            return self._step_slots[number]
        from .lane import Lane

        with self._mutex:
            while len(self._step_slots) <= number:
                self._step_slots.append(StepSlot())
            step_slot = self._step_slots[number]
            with step_slot.mutex:
                for place in range(len(step_slot.lanes), len(lanes)):
                    lane = Lane(self._backend, lanes[place], self.planning, self._options)
                    self._load(lane, number, place)
                    step_slot.lanes.append(lane)
        return step_slot

    def _load(self, lane: Lane, number: int, place: int) -> bool:
        """Give a lane what a file had for it; False where there is no memory for the arena."""
        plans = [
            (saved.key, saved.plan)
            for saved in self._loaded
            if (saved.step_slot, saved.lane) == (number, place)
        ]
        return not plans or lane.load(plans)

    def _all(self) -> list[Lane]:
        return [lane for step_slot in self._step_slots for lane in step_slot.lanes]

    # ------------------------------------------------------------------------------------------------------- steps

    def check(self) -> None:
        """Raise PoolError where no step may begin: in an interrupted part of this thread, or if steps are refused."""
        if self._refusal is not None:
            raise PoolError(self._refusal)
        if self._interrupted.depth:
            raise PoolError("a step cannot begin in an interrupted part: resume first")

    def nested(self) -> PoolError:
        """Return what to raise where this thread runs a step already."""
        runner = "the process" if self.of_process else "this thread"
        return PoolError(f"{runner} runs a step already: steps do not nest{_of_tasks()}")

    @runs_apart
    def begin_step(self, number: int, lanes: list[int], key: Hashable, keeps_results: bool) -> None:
        """Tell what the lanes of a step that has been entered may follow; for want of memory they follow nothing."""
        try:
            step_slot = self._step_slot(number, lanes)
            with step_slot.mutex:
                self._backend.begin([lane.next_step(key, keeps_results) for lane in step_slot.lanes])
        except FAILURES as error:
            self.planning.failed(error)

    @runs_apart
    def end_step(self, number: int, step: int, error: BaseException | None) -> None:
        """End a step, and learn from it: nothing about the next one where an error left it."""
        if error is not None and self._is_out_of_memory(error):
            self.diagnose(error)
        if number >= len(self._step_slots):  # nothing of it could be decided
            self._backend.end(number, step)
            return
        step_slot = self._step_slots[number]
        try:
            with step_slot.mutex:  # the next step in this slot waits until this one is judged
                outcomes = dict(self._backend.end(number, step))
                for lane in step_slot.lanes:
                    if lane.number in outcomes:
                        lane.step_ended(outcomes[lane.number], failed=error is not None)
        except FAILURES as trouble:
            self.planning.failed(trouble)

    @runs_apart
    def wait(self, timeout: float | None) -> bool:
        """Wait until the plans being made are ready for the next step; return whether they are."""
        self._backend.settle()
        until = None if timeout is None else time.monotonic() + timeout
        ready = True
        for step_slot in list(self._step_slots):
            for lane in list(step_slot.lanes):
                ready &= lane.wait(None if until is None else max(until - time.monotonic(), 0))
                try:
                    with step_slot.mutex:
                        lane.adopt_ready_plans()
                except FAILURES as error:
                    self.planning.failed(error)
        return ready

    # ----------------------------------------------------------------------------------------------- interruptions

    def interrupt(self) -> None:
        """Enter a part of the program, in this thread, whose requests go upstream and stay out of the record."""
        self.be_interrupted(self.interruptions + 1)

    @property
    def interruptions(self) -> int:
        """How many interrupted parts this thread is in."""
        return self._interrupted.depth

    def be_interrupted(self, depth: int) -> None:
        """Be in so many interrupted parts; cut off, it is in them, or its next step is in none."""
        self._backend.set_interrupted(depth > 0)
        self._interrupted.depth = depth

    def resume(self) -> None:
        """Leave the innermost interrupted part; raise PoolError where this thread is in none."""
        if not self._interrupted.depth:
            raise PoolError("resume without interrupt: this thread is not in an interrupted part")
        self.be_interrupted(self.interruptions - 1)

    # ------------------------------------------------------------------------------------------------------- forks

    @runs_apart
    def reset_after_fork(self) -> None:
        """Forget what threads were doing that a fork has left behind; see `fork_handlers`. The locks are held."""
        self._backend.end_steps_of_others()
        for lane in self._all():
            lane.planner_lost()
        self.planning.shared.reset_after_fork()
        self.planning.budget.reset_after_fork()

    def refuse(self, why: str) -> None:
        """Let no further step begin."""
        self._refusal = why

    # ------------------------------------------------------------------------------------------------------- files

    @runs_apart
    def save(self, path: str | os.PathLike[str], backend: str) -> None:
        """Write the plans of all lanes; see `save_plans`."""
        from ..planning.plan_file import SavedPlan, save_plans

        plans = [
            SavedPlan(number, place, entry.key, entry.plan)
            for number, step_slot in enumerate(self._step_slots)
            for place, lane in enumerate(step_slot.lanes)
            for entry in lane.held
        ]
        save_plans(path, plans, backend, self.planning.alignment, self._backend.small)

    @runs_apart
    def load(self, path: str | os.PathLike[str], backend: str) -> None:
        """Take plans from a file into use, in place of a warm-up; see `load_plans`.

        Those of the first step slot at once (PoolError where there is no memory for its arena), those of others when
        steps of as many threads run at once.
        """
        from ..planning.plan_file import load_plans

        plans, small = load_plans(path, backend, self.planning.alignment)
        self._backend.lower_small(small)
        lanes = max((saved.lane + 1 for saved in plans if saved.step_slot == 0), default=1)
        while len(self._backend.lanes_of(0)) < lanes:
            self._backend.add_lane(0)
        step_slot = self._step_slot(0, self._backend.lanes_of(0))
        self._loaded = plans
        for place in range(len(step_slot.lanes)):
            with step_slot.mutex:
                if not self._load(step_slot.lanes[place], 0, place):
                    raise PoolError(f"no memory for the arena that the plans of {os.fspath(path)} need")

    # ------------------------------------------------------------------------------------------------------ answers

    def plan(self) -> Plan:
        """Return the plan that was made last, of several lanes' the one with the largest arena; see `Pool.plan`."""
        plans = [lane.latest for lane in self._all() if lane.latest is not None]
        refused = max((lane.refused_bytes for lane in self._all()), default=0)
        if not plans and refused:
            raise ProfileError(
                f"no plan is in use: there is no memory for its arena of {refused:,} bytes; "
                "expected more memory, a higher limit, or a smaller step"
            )
        if not plans:
            raise ProfileError(
                "no plan yet: no step has passed after the warm-up and been followed by another"
            )
        return max(plans, key=lambda plan: plan.arena_bytes)

    def stats(self) -> Stats:
        """Return a snapshot of the pool's counts."""
        from .stats import snapshot

        lanes = self._all()
        return snapshot(
            self._backend.counters(),
            plans=sum(lane.plans for lane in lanes),
            reoptimizations=sum(lane.reoptimizations for lane in lanes),
            lower_bound=sum(lane.lower_bound for lane in lanes),
            planning_seconds=self.planning.budget.seconds,
            plans_skipped=self.planning.budget.skipped,
            plans_failed=self.planning.failures,
            planning_bytes=self._planning_bytes(lanes),
        )

    def _planning_bytes(self, lanes: list[Lane]) -> int:
        held = [entry for lane in lanes for entry in lane.held]
        plans = self.planning.shared.plans().union(entry.plan for entry in held)
        return sum(plan.nbytes for plan in plans) + sum(entry.core.nbytes for entry in held)

    def has_served(self) -> bool:
        """Whether any request has come."""
        return any(self._backend.counters()["requests"].values())

    @runs_apart
    def report(self) -> dict[str, Any]:
        """Return what fills the memory, and why requests were not replayed; see `Pool.report`."""
        return {
            **self._diagnoses().report(self.stats(), self._in_use(), self._key()),
            "planning_failure": self.planning.failure,
        }

    @runs_apart
    def diagnose(self, error: BaseException) -> None:
        """Have an error that a failure in this thread's step has caused tell what the request found, if it can."""
        with suppress(MemoryError):
            self._diagnoses().explain(error, self._in_use(), self._key())

    def _diagnoses(self) -> Diagnosis:
        from .report import Diagnosis

        if self._diagnosis is None:
            self._diagnosis = Diagnosis(self._backend)
        return self._diagnosis

    def _in_use(self) -> list[InUse]:
        return [(lane.number, entry) for lane in self._all() for entry in lane.held]

    def _key(self) -> Hashable:
        """Return the key of this thread's step, or of its last one."""
        number = self._backend.situation()["step_slot"]
        lanes = self._step_slots[number].lanes if number < len(self._step_slots) else []
        return lanes[0].key if lanes else None


def _of_tasks() -> str:
    """Return what else to tell an asyncio task: the step may be another task's, which waits."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None or asyncio.current_task() is None:
        return ""
    return (
        ". It may be the step of another asyncio task, which waits: put no await into a step, "
        "or have an asyncio.Lock around each, or run the steps in threads (asyncio.to_thread), each in `with pool:`"
    )
