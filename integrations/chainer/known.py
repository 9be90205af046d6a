"""A structure of steps that was recorded, and the schedule that is made for it, in a thread of its own."""

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
