"""Record the step graph of a training step, without making a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..common.errors import ProfileError
from ..scheduling import StepGraph
from .known import TIMED_STEPS
from .scheduler import Scheduler

STEPS = 2 + TIMED_STEPS
"""Steps until the graph is known: one as Chainer runs it, one recorded, and the timed ones."""


class GraphRecorder(Scheduler):
    """A scheduler whose first `STEPS` steps make a step graph, and which makes no schedule.

    Parameters
    ----------
    optimizer, early_updates
        As for `Scheduler`.
    """

    def __init__(self, optimizer: Any, early_updates: bool | None = None) -> None:
        super().__init__(optimizer, budget=0, early_updates=early_updates)

    def _sparing(self) -> None:
        """Keep all: there is no budget."""

    def _solve(self, known: Any, budget: int) -> None:
        """Make no schedule."""

    @property
    def graph(self) -> StepGraph | None:
        """The lean step's graph: exact bytes, the least seconds of several steps. None: not yet, or no operator."""
        return self._known[0].recording.with_seconds(self._known[0].seconds) if self._known else None


def record_graph(
    optimizer: Any, step: Callable[[], object], *, early_updates: bool | None = None
) -> StepGraph:
    """Run training steps until their step graph is known, and return it.

    Parameters
    ----------
    optimizer, early_updates
        As for `Scheduler`: with early updates the graph has each update where the gradient is complete.
    step
        Runs one training step; called ``STEPS`` times.

    Raises
    ------
    ProfileError
        The step applies no Chainer function.
    """
    recorder = GraphRecorder(optimizer, early_updates)
    for _ in range(STEPS):
        with recorder.step():
            step()
    if recorder.graph is None:
        why = recorder.stats.unrecorded or "no operator was recorded"
        raise ProfileError(f"{why}; expected a training step of Chainer's")
    return recorder.graph
