"""A structure of steps that was recorded, and the schedule that is made for it, in a thread of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import BudgetError
from .capture import Recording
from .directions import Directions
from .timed import Seconds

if TYPE_CHECKING:
    from ..scheduling.solve import Solution

__all__ = ["TIMED_STEPS", "Known", "over_budget"]

TIMED_STEPS = 2
"""Number of steps that are timed; the least seconds count."""


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

    @property
    def is_refined(self) -> bool:
        """Whether the seconds are not known yet, or a schedule by them is still to come, in the place of one."""
        return self.timed < TIMED_STEPS or (self.thread is not None and self.directions is not None)

    @property
    def is_ready(self) -> bool:
        """Whether a schedule has been made. The first one, for steps to be timed, is waited for."""
        if self.thread is not None and self.timed < TIMED_STEPS:
            self.thread.join()
        return self.thread is not None and not self.thread.is_alive()

    def solve(self, budget: int, solver: str, **options: Any) -> None:
        """Start to make a schedule; options are those of `stowplan.scheduling.solve.schedule`."""
        self.error = None
        graph = self.recording.with_seconds(self.seconds)
        options["reorder"] = self.recording.passes == 1

        def run() -> None:
            try:
                from ..scheduling.solve import schedule

                # A step without a backward pass is run by the program: nothing can be made again in it.
                used = solver if graph.has_phases() else "lean"
                self.use(schedule(graph, budget, used, **options))
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=run, name="stowplan-schedule", daemon=True)
        self.thread.start()

    def use(self, solution: Solution) -> None:
        """Have steps run by a schedule."""
        structure, graph = self.recording.structure, self.recording.graph
        self.directions = Directions.of(structure, graph, solution.schedule, solution.outcome)
        self.solution = solution


def over_budget(error: BudgetError, budget: int, retained: int) -> BudgetError:
    """Return the error of a schedule in terms of the step's budget, what is retained included."""
    least = error.least + retained
    return BudgetError(
        f"a step cannot keep to {budget:,} bytes: the least that was found is {least:,}, "
        f"{retained:,} of them parameters and state; {error.floor}",
        least,
        error.floor,
        error.solution,
    )
