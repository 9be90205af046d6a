"""When to record, when to plan, when to replay: the states of a pool, for every backend.

::

    warm-up ──> record ──> confirm ──> replay ──┐
                  ^  └───────^ │          ^     │ a step that was not clean
                  │  not equal │          │     v
                  └────────────┘          └── observe: replay goes on, its log is a new record;
                  a step that failed          an equal next step brings a new plan

*Warm-up* steps are not representative (lazy parameters, optimizer state). *Record* keeps a step's log; *confirm*
compares it with the next one, which also shows where wrapped blocks end. From then on each step is *replayed*; one that
was not served from the plan throughout is observed as if it were recorded, while the old plan goes on serving.

Nothing here raises because of what the program did: a plan is an optimization.
"""

from __future__ import annotations

import contextvars
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..errors import PoolError, ProfileError, StowplanError
from ..packing.registry import find
from ..profiler import Profile, StepLog, profile_steps
from ._core import CorePlan
from .plan import Plan, make_plan
from .stats import Stats


class Backend(Protocol):
    """The compiled half of a pool: a replay core with memory behind it."""

    def begin_step(self) -> bool:
        """Start a step in this thread; False where one is running."""

    def end_step(self) -> tuple[npt.NDArray[np.void], bool, bool]:
        """Return (events, complete, clean)."""

    def set_timestamps(self, on: bool) -> None:
        """Note the wall clock of events, or not."""

    def install(self, plan: CorePlan) -> bool:
        """Replay this plan from the next step on; False where there is no memory for its arena."""

    def counters(self) -> dict[str, object]:
        """Return the core's counters."""


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
    solver
        Name of the packing solver.

    Raises
    ------
    PoolError
        `warmup` is negative or not an integer.
    UnknownSolverError
        There is no such solver.
    """

    def __init__(self, backend: Backend, *, warmup: int, alignment: int, solver: str) -> None:
        if not isinstance(warmup, int) or isinstance(warmup, bool) or warmup < 0:
            raise PoolError(f"warmup is {warmup!r}; expected a number of steps, 0 or more")
        if solver != "auto":
            find(solver)
        self._backend = backend
        self._warmup = warmup
        self._alignment = alignment
        self._solver = solver
        self._record: StepLog | None = None  # the last step's log, where it may become a plan
        self._plan: Plan | None = None
        self._plans = 0
        self._observe(True)

    def begin_step(self) -> None:
        """Start a step in this thread.

        Raises
        ------
        PoolError
            A step is running already.
        """
        if not self._backend.begin_step():
            raise PoolError("a step is running already: steps do not nest")

    def end_step(self, failed: bool) -> None:
        """End the step; `failed` where an exception left it, so that it says nothing about the next.

        Runs in an empty context, in which NumPy's handler is the default one: the arrays that planning needs are no
        business of the pool's.
        """
        contextvars.Context().run(self._end_step, failed)

    def _end_step(self, failed: bool) -> None:
        events, complete, clean = self._backend.end_step()
        if failed or not complete:
            self._record = None
        elif self._warmup > 0:
            self._warmup -= 1
        elif clean:
            self._record = None
            self._observe(False)
        else:
            self._observe(True)
            self._learn(StepLog(events))

    def profile(self) -> Profile:
        """Return the profile of the last planned step.

        Raises
        ------
        ProfileError
            There is no plan yet.
        """
        return self.plan().profile

    def plan(self) -> Plan:
        """Return the plan in use.

        Raises
        ------
        ProfileError
            There is no plan yet.
        """
        if self._plan is None:
            raise ProfileError("no plan yet: no step after the warm-up was repeated by the one after it")
        return self._plan

    def stats(self) -> Stats:
        """Return a snapshot of the pool's counts."""
        counters = self._backend.counters()
        requests = dict(counters["requests"])  # type: ignore[call-overload]
        replayed = requests.pop("replayed")
        plan = self._plan
        return Stats(
            replayed=replayed,
            upstream=sum(requests.values()),
            reasons={name: n for name, n in requests.items() if n},
            plans=self._plans,
            reoptimizations=max(self._plans - 1, 0),
            lower_bound=0 if plan is None else plan.placement.lower_bound,
            **{name: counters[name] for name in _PASSED_ON},  # type: ignore[arg-type]
        )

    def _learn(self, log: StepLog) -> None:
        """Make a plan of two equal steps; else keep this one for the next to repeat."""
        previous, self._record = self._record, log
        if previous is None or not previous.equals(log):
            return
        try:
            plan = make_plan(profile_steps(previous, log), alignment=self._alignment, solver=self._solver)
        except (StowplanError, MemoryError):
            return  # upstream, or the old plan, goes on serving
        if self._backend.install(plan.core()):
            self._plan = plan
            self._plans += 1
            self._observe(False)

    def _observe(self, on: bool) -> None:
        self._backend.set_timestamps(on)


_PASSED_ON = (
    "smaller",
    "missing",
    "arena_bytes",
    "live_bytes",
    "peak_live_bytes",
    "peak_reserved_bytes",
)
