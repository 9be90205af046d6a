"""The steps of a pool on one device: who runs them, and who decides in each of their lanes.

A step takes a berth, and in it every stream has a lane (allocator/core/lanes.hpp): requests, a plan and an arena of its
own. So a `Controller` decides for each lane, as if there were no other.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from ..errors import PoolError, ProfileError
from ..planning import Plan
from ..planning.saved import SavedPlan, load_plans, save_plans
from ..planning.shared import SharedPlans
from .collector import start_collector
from .controller import Backend, Controller, Outcome
from .report import Diagnosis, InUse
from .stats import Stats, snapshot


class Lanes:
    """A pool's steps on one device.

    Parameters
    ----------
    backend
        What serves the requests.
    alignment
        Bytes; of every planned offset.
    auto_step
        Find steps without being told, until the first `begin_step`.
    enter
        Called first on the thread that collects the steps found.
    options
        As for `Controller`: `warmup`, `planner`, `max_plans`.

    Raises
    ------
    PoolError, UnknownSolverError
        As for `Controller`.
    """

    def __init__(
        self,
        backend: BerthBackend,
        *,
        alignment: int,
        auto_step: bool = False,
        enter: Callable[[], Any] = lambda: None,
        **options: Any,
    ) -> None:
        self._backend = backend
        self._alignment = alignment
        self._shared = shared = SharedPlans(options["max_plans"])
        self._make: Callable[[int], Controller] = lambda lane: Controller(
            backend, lane, shared, alignment=alignment, auto_step=auto_step, **options
        )
        self._loaded: list[SavedPlan] = []
        self._mutex = threading.Lock()
        self._berths: list[list[Controller]] = [[]]  # the controllers of each berth's lanes
        self._controllers(0)
        self._running: dict[int, int] = {}  # berth -> thread, of the steps that run
        self._interruptions = threading.local()
        self._diagnosis = Diagnosis(backend)
        self._refusal: str | None = None
        self._collecting = threading.Lock()
        self._enter = enter
        self._auto_step = auto_step
        if auto_step:
            backend.find_steps()
            self._start_collector()

    def _start_collector(self) -> None:
        start_collector(self._backend, self.collect, self._enter)

    def _controllers(self, berth: int) -> list[Controller]:
        """Return who decides in a berth's lanes; there may be new ones."""
        with self._mutex:
            while len(self._berths) <= berth:
                self._berths.append([])
            controllers = self._berths[berth]
            known = len(controllers)
            controllers += [self._make(lane) for lane in self._backend.lanes_of(berth)[known:]]
        for place, controller in enumerate(controllers[known:], known):
            self._take_loaded(berth, place, controller)
        return controllers

    def _take_loaded(self, berth: int, place: int, controller: Controller) -> bool:
        """Give a lane what a file had for it; False where there is no memory for the arena."""
        plans = [
            (saved.key, saved.plan) for saved in self._loaded if (saved.berth, saved.lane) == (berth, place)
        ]
        return not plans or contextvars.Context().run(controller.take, plans)

    def _all(self) -> list[Controller]:
        return [controller for controllers in self._berths for controller in controllers]

    # ------------------------------------------------------------------------------------------------------- steps

    def begin_step(self, key: Hashable) -> int:
        """Start a step in this thread; return its berth.

        Raises
        ------
        PoolError
            This thread runs a step already, or it is in an interrupted part, or steps are refused.
        """
        if self._refusal is not None:
            raise PoolError(self._refusal)
        if self._interrupted:
            raise PoolError("a step cannot begin in an interrupted part: resume first")
        with self._mutex:
            berth = self._backend.enter()
            if berth is None:
                raise PoolError("this thread runs a step already: steps do not nest")
            self._running[berth] = threading.get_ident()
        begun: list[Controller] = []
        try:
            for controller in self._controllers(berth):
                controller.begin_step(key)
                begun.append(controller)
        except BaseException:
            self._leave(berth, begun, failed=True)
            raise
        return berth

    def end_step(self, berth: int, failed: bool) -> None:
        """End a step; `failed` where an exception left it, so that it says nothing about the next."""
        self._leave(berth, self._berths[berth], failed)

    def _leave(self, berth: int, controllers: list[Controller], failed: bool) -> None:
        try:
            for controller in controllers:
                controller.end_step(failed)
        finally:
            with self._mutex:
                del self._running[berth]
                self._backend.leave(berth)

    def collect(self) -> None:
        """Learn from the steps that were found and have ended; on any thread."""
        with self._collecting:  # outcomes come in their order
            outcomes: dict[int, list[Outcome]] = {}
            for lane, outcome in contextvars.Context().run(self._backend.take_outcomes):
                outcomes.setdefault(lane, []).append(outcome)
            for berth in range(len(self._berths)):
                for controller in self._controllers(berth):
                    if controller.lane in outcomes:
                        controller.collect(outcomes[controller.lane])

    def wait(self, timeout: float | None) -> bool:
        """Wait until the plans being made are ready for the next step; return whether they are."""
        self._backend.settle()
        self.collect()
        until = None if timeout is None else time.monotonic() + timeout
        ready = True
        for controller in self._all():
            ready &= controller.wait(None if until is None else max(until - time.monotonic(), 0))
        return ready

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

    # ------------------------------------------------------------------------------------------------------- forks

    def lock(self) -> None:
        """Keep other threads out, until `unlock`: nobody takes or leaves a berth, makes a lane or takes up a plan."""
        self._collecting.acquire()
        self._mutex.acquire()
        for controller in self._all():
            controller.lock()

    def unlock(self) -> None:
        """Let other threads in again."""
        for controller in self._all():
            controller.unlock()
        self._mutex.release()
        self._collecting.release()

    def begin_anew(self) -> None:
        """Forget what threads were doing that a fork has left behind; see `forking`. The locks are held."""
        for berth, controllers in enumerate(self._berths):
            gone = self._running.get(berth, threading.get_ident()) != threading.get_ident()
            for controller in controllers:
                controller.begin_anew(in_step=gone)
            if gone:
                del self._running[berth]
                self._backend.leave(berth)
        self._shared.begin_anew()
        if self._auto_step:
            self._start_collector()

    def refuse(self, why: str) -> None:
        """Let no further step begin."""
        self._refusal = why

    # ------------------------------------------------------------------------------------------------------- files

    def save(self, path: str | os.PathLike[str], backend: str) -> None:
        """Write the plans of all lanes; see `save_plans`."""
        plans = [
            SavedPlan(berth, lane, entry.key, entry.plan)
            for berth in range(len(self._berths))
            for lane, controller in enumerate(self._controllers(berth))
            for entry in controller.in_use()
        ]
        contextvars.Context().run(save_plans, path, plans, backend, self._alignment, self._backend.small)

    def load(self, path: str | os.PathLike[str], backend: str) -> None:
        """Take plans from a file into use, in place of a warm-up; see `load_plans`.

        Those of the first berth at once, those of others when steps of as many threads run at once.

        Raises
        ------
        PoolError
            There is no memory for the first berth's arena.
        """
        plans, small = contextvars.Context().run(load_plans, path, backend, self._alignment)
        if small < self._backend.small:
            self._backend.refine()
        lanes = max((saved.lane + 1 for saved in plans if saved.berth == 0), default=1)
        for _ in range(len(self._controllers(0)), lanes):
            self._backend.add_lane(0)
        controllers = self._controllers(0)
        self._loaded = plans
        for place, controller in enumerate(controllers):
            if not self._take_loaded(0, place, controller):
                raise PoolError(f"no memory for the arena that the plans of {os.fspath(path)} need")

    # ------------------------------------------------------------------------------------------------------ answers

    def plan(self) -> Plan:
        """Return the plan that was made last; of several lanes', the one with the largest arena.

        Raises
        ------
        ProfileError
            There is no plan yet.
        """
        plans = [controller.latest for controller in self._all() if controller.latest is not None]
        if not plans:
            raise ProfileError(
                "no plan yet: no step has passed after the warm-up and been followed by another"
            )
        return max(plans, key=lambda plan: plan.arena_bytes)

    def stats(self) -> Stats:
        """Return a snapshot of the pool's counts."""
        controllers = self._all()
        return snapshot(
            self._backend.counters(),
            plans=sum(controller.plans for controller in controllers),
            reoptimizations=sum(controller.reoptimizations for controller in controllers),
            lower_bound=sum(controller.lower_bound for controller in controllers),
        )

    def report(self) -> dict[str, Any]:
        """Return what fills the memory, and why requests were not replayed; see `Pool.report`."""
        return contextvars.Context().run(self._diagnosis.report, self.stats(), self._in_use(), self._key())

    def diagnose(self, error: BaseException) -> None:
        """Have an error that a failure in this thread's step has caused say what the request found."""
        contextvars.Context().run(self._diagnosis.explain, error, self._in_use(), self._key())

    def _in_use(self) -> list[InUse]:
        return [
            InUse(lane, entry.key, entry.tag, entry.plan)
            for berth, controllers in enumerate(self._berths)
            for lane, controller in zip(self._backend.lanes_of(berth), controllers, strict=False)
            for entry in controller.in_use()
        ]

    def _key(self) -> Hashable:
        """Return the key of this thread's step, or of its last one."""
        berth = self._backend.situation()["berth"]
        controllers = self._berths[berth] if berth < len(self._berths) else []
        return controllers[0].key if controllers else None


class BerthBackend(Backend, Protocol):
    """A backend whose steps take berths, with lanes in them (allocator/core/lanes.hpp)."""

    def enter(self) -> int | None:
        """Take a berth for a step of this thread; None where it runs one."""

    def leave(self, berth: int) -> None:
        """Give a berth up. No step is running in its lanes."""

    def lanes_of(self, berth: int) -> list[int]:
        """Return the numbers of a berth's lanes; there may be more of them with every step."""

    def add_lane(self, berth: int) -> int:
        """Make a lane for a stream that is not known yet; return its number."""

    def find_steps(self) -> None:
        """Find steps without being told, until the first `enter`."""

    def take_outcomes(self) -> list[tuple[int, Outcome]]:
        """Return the outcomes, with their lanes, of steps found that have ended."""

    def wait_for_outcomes(self) -> bool:
        """Wait for the next ones; False after close()."""

    def close(self) -> None:
        """End all waits, now and to come."""

    def set_interrupted(self, interrupted: bool) -> None:
        """Send this thread's requests upstream, if it runs a step."""

    def settle(self) -> None:
        """Let go of blocks whose end was waiting for other streams, where these are done."""

    def situation(self) -> dict[str, Any]:
        """Return what fills the memory, as this thread sees it."""

    def failure(self) -> dict[str, Any] | None:
        """Return the last request that upstream had no memory for, and what it found; None where there is none."""
