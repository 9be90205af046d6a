"""What a scheduler knows of its steps: each structure that was recorded, with its schedule, and statistics.

A schedule is made in a thread of its own (`Known.solve`), from the recording and the seconds of steps that were timed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import BudgetError
from ..common.units import parse_bytes, parse_share
from ..profiler.unbroken import unbroken
from ..scheduling import StepGraph, simulate
from .recorder import Recording, Seconds
from .schedule_follower import Directions

if TYPE_CHECKING:
    from ..scheduling.solve import Solution

TIMED_STEPS = 2
"""Number of steps that are timed; the least seconds count."""

# If a signal's handler raises within a thread's join() or is_alive(), Python says from then on that the thread ended.
_is_alive = unbroken(threading.Thread.is_alive)


@dataclass
class Known:
    """A structure with its schedule, or the recording that it is made from.

    Attributes
    ----------
    recording, seconds, timed
        The recording and the seconds of its steps; how many were timed.
    solution, directions, error
        The last schedule, or what went wrong with it.
    thread
        Makes a schedule.
    """

    recording: Recording
    seconds: Seconds
    timed: int = 0
    solution: Solution | None = None
    directions: Directions | None = None
    error: BaseException | None = None
    thread: threading.Thread | None = None
    _over: SimpleQueue[None] = field(default_factory=SimpleQueue)

    @property
    def is_refined(self) -> bool:
        """Whether the seconds are not known yet, or a schedule by them is still to come, in the place of one."""
        return self.timed < TIMED_STEPS or (self.thread is not None and self.directions is not None)

    @property
    def is_ready(self) -> bool:
        """Whether a schedule has been made."""
        return self.thread is not None and not _is_alive(self.thread)

    def wait(self, timeout: float | None) -> bool:
        """Wait for the schedule that is being made; return whether none is any more."""
        if self.thread is not None and _is_alive(self.thread):
            with suppress(Empty):
                self._over.put(self._over.get(timeout=timeout))
                self.thread.join()
        return self.thread is None or not _is_alive(self.thread)

    def solve(self, budget: int, solver: str, **options: Any) -> None:
        """Start to make a schedule; options are those of `stowplan.scheduling.solve.schedule`."""
        self.error = None
        self._over = over = SimpleQueue[None]()
        graph = self.recording.with_seconds(self.seconds)
        options["reorder"] = self.recording.passes == 1

        def run() -> None:
            try:
                # A step without a backward pass is run by the program: nothing can be made again in it.
                used = solver if graph.has_phases() else "lean"
                self.use(_scheduled(graph, budget, used, **options))
            except BaseException as error:
                self.error = error
            over.put(None)

        # The interpreter waits for it when it goes down: a solver is not cut off.
        self.thread = threading.Thread(target=run, name="stowplan-schedule", daemon=False)
        self.thread.start()

    def use(self, solution: Solution) -> None:
        """Have steps run by a schedule."""
        structure, graph = self.recording.structure, self.recording.graph
        self.directions = Directions.of(structure, graph, solution.schedule, solution.outcome)
        self.solution = solution


def _scheduled(graph: StepGraph, budget: int, solver: str, **options: Any) -> Solution:
    """Return a schedule by the measured seconds; where they find none, by equal ones.

    Seconds differ from run to run, and so does the least peak that is found by them. The one found by equal seconds is
    the graph's own: it is what an error names, and what is accepted when it is asked for.
    """
    from ..scheduling.solve import schedule

    try:
        return schedule(graph, budget, solver, **options)
    except BudgetError:
        found = schedule(graph.with_seconds(np.ones(len(graph))), budget, solver, **options)
        extra = simulate(graph, found.schedule).extra_seconds
        return replace(found, outcome=replace(found.outcome, extra_seconds=extra))


@unbroken
def parse_budget(budget: int | str) -> tuple[int | None, float | None]:
    """Return the bytes of a budget, or, of one like ``"60%"``, the share of the peak without recomputation.

    Raises
    ------
    ValueError
        It is neither.
    """
    try:
        share = parse_share(budget)
        return (parse_bytes(budget), None) if share is None else (None, share)
    except ValueError:
        raise ValueError(
            f"budget is {budget!r}; expected bytes, like 4096, 512MiB or 16GB, or a share of the peak without "
            "recomputation, like 60%: above 0% and up to 100%"
        ) from None


def over_budget(error: BudgetError, budget: int, retained: int, used: Mapping[str, bool]) -> BudgetError:
    """Return the error of a schedule in terms of the step's budget, what is retained included.

    ``used``: which of the options that offload are on; the error names the others.
    """
    least = error.least + retained
    unused = " and ".join(f"{option}=True" for option, is_used in used.items() if not is_used)
    more = f"; {unused} may lower it as well" if unused else ""
    return BudgetError(
        f"a step cannot keep to {budget:,} bytes: the least that was found is {least:,}, "
        f"{retained:,} of them parameters and state; {error.floor}{more}",
        least,
        error.floor,
        error.solution,
    )


@dataclass(frozen=True)
class SchedulerStats:
    """Counts of a scheduler's steps, and its predictions.

    Attributes
    ----------
    watched
        Steps that ran as Chainer runs them, to their end.
    recorded
        Steps that were recorded, to their end.
    timed
        Steps that were timed, to their end.
    lean
        Steps that ran lean, to their end.
    scheduled
        Steps that ran as scheduled, to their end.
    departed
        Steps that began as scheduled, and turned out to have a structure without a schedule: they went on as lean ones.
    recomputed
        Operators that ran again, in all steps.
    swapped
        Values that were evicted and fetched, in all steps.
    swapped_parameters
        Parameters, and arrays of their state, that were fetched, in all steps and between them.
    schedules
        Structures with a schedule.
    keeps_gradients
        Why gradients are kept until all parameters are updated, as Chainer does; None: parameters are updated early.
    keeps_graph
        Why arrays are kept after the last backward step that reads them, as Chainer does; None: they are freed.
    keeps_parameters
        Why parameters stay in memory that were to be swapped; None: none does.
    keeps_values
        Why values that were to be evicted stayed in memory; None: none did.
    unrecorded
        Why steps of a structure that came again run lean, without a schedule: how recording one failed; None: none did.
    retained_bytes
        Bytes of parameters, persistent values, the optimizer's state, and gradients that steps without an update leave;
        without those that are swapped. Parameters that no optimizer has count from the recorded step on.
    planned_peak
        Most bytes that the last schedule's step has alive besides these, as predicted; 0 without a schedule.
    extra_seconds
        Seconds that the last schedule costs in a step, as predicted.
    """

    watched: int = 0
    recorded: int = 0
    timed: int = 0
    lean: int = 0
    scheduled: int = 0
    departed: int = 0
    recomputed: int = 0
    swapped: int = 0
    swapped_parameters: int = 0
    schedules: int = 0
    keeps_gradients: str | None = None
    keeps_graph: str | None = None
    keeps_parameters: str | None = None
    keeps_values: str | None = None
    unrecorded: str | None = None
    retained_bytes: int = 0
    planned_peak: int = 0
    extra_seconds: float = 0.0
