"""What the controller needs of the compiled half of a pool."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ._core import CorePlan, PlanSet

Outcome = tuple[npt.NDArray[np.void], bool, bool, int]
"""Of a step: (events, complete, clean, tag of the plan followed)."""


class Backend(Protocol):
    """The compiled half of a pool: a replay core with memory behind it."""

    def begin_step(self, plan: CorePlan | None, others: PlanSet) -> bool:
        """Start a step in this thread that is expected to follow `plan`; False where one is running."""

    def end_step(self) -> Outcome:
        """Return what is to be said of the step."""

    def find_steps(self) -> None:
        """Find steps without being told, until the first begin_step."""

    def expect(self, plan: CorePlan | None, others: PlanSet, wanted: bool) -> None:
        """Say what steps found are expected to follow, and whether the outcome is wanted of those that do."""

    def take_outcomes(self) -> list[Outcome]:
        """Return the outcomes of steps found that have ended."""

    def wait_for_outcomes(self) -> bool:
        """Wait for the next ones; False after close()."""

    def close(self) -> None:
        """End all waits, now and to come."""

    def set_interrupted(self, interrupted: bool) -> None:
        """Send this thread's requests upstream, if the running step is its own."""

    def set_timestamps(self, on: bool) -> None:
        """Note the wall clock of events, or not."""

    def reserve(self, size: int) -> bool:
        """Make the arena at least this large; False where upstream has no memory for it."""

    def counters(self) -> dict[str, Any]:
        """Return the core's counters."""
