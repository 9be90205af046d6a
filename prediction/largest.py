"""The largest batch of a recorded step that fits a memory: planned as it is, lean, or with recomputation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..errors import BudgetError, GraphError, ProfileError, ScheduleError
from ..packing import lower_bound
from ..planning import Plan, make_plan, problem_of
from ..scheduling import StepGraph, simulate
from ..scheduling import lean as lean_schedule
from ..scheduling.bounds import bound_schedules
from ..scheduling.solve import Solution, least, schedule
from .graphs import GraphModel
from .prediction import last_that
from .steps import StepPrediction

__all__ = [
    "ScheduledStep",
    "largest_batch",
    "largest_scheduled_batch",
    "predict_schedules",
]

_MOST = 1 << 32  # batches that are tried


def largest_batch(model: StepPrediction, memory: int, **how: Any) -> tuple[int, Plan] | None:
    """Find the largest batch whose arena fits a memory.

    Lower bounds, which are cheap, give the first candidate; if its plan does not fit, plans decide. O(log batch) of
    each.

    Parameters
    ----------
    model
        A model of batches.
    memory
        Bytes that the arena may have.
    how
        Alignment, planner, time limit and threads, as for ``stowplan.planning.make_plan``.

    Returns
    -------
    The batch and its plan; None if not even a batch of 1 fits.

    Raises
    ------
    ProfileError
        A larger batch needs no more bytes, so that there is no largest one.
    """
    if not model.grows:
        raise ProfileError("no block grows with the batch; expected profiles of different batch sizes")

    def plan(batch: int) -> Plan:
        return make_plan(model.profile({"batch": batch}), **how)

    def bound_fits(batch: int) -> bool:
        return lower_bound(problem_of(model.profile({"batch": batch}), how["alignment"])[0]) <= memory

    batch = last_that(bound_fits, _MOST)
    if batch and plan(batch).arena_bytes > memory:
        batch = last_that(lambda larger: plan(larger).arena_bytes <= memory, _MOST, batch)
    return (batch, plan(batch)) if batch else None


@dataclass(frozen=True)
class ScheduledStep:
    """The predicted step at a batch size: its lean schedule, which costs no time, and the one requested."""

    batch: int
    graph: StepGraph
    lean: Solution
    scheduled: Solution

    @property
    def extra_share(self) -> float:
        """Extra time of the schedule requested, as a share of the step's; 0 if the graph has no seconds."""
        step = float(self.graph.seconds.sum())
        return self.scheduled.extra_seconds / step if step else 0.0


def predict_schedules(
    model: GraphModel, batch: int, *, solver: str = "auto", time_limit: float | None = None, threads: int = 1
) -> ScheduledStep:
    """Find the lean schedule of the step at a batch size, and the one with the least peak."""
    graph = model.at(batch)
    lean = schedule(graph, solver="lean")
    found = least(graph, solver=solver, time_limit=time_limit, threads=threads)
    return ScheduledStep(batch, graph, lean, min(lean, found, key=lambda s: (s.peak, s.extra_seconds)))


def largest_scheduled_batch(
    model: GraphModel,
    memory: int,
    retained: int | None = None,
    *,
    solver: str = "auto",
    time_limit: float | None = None,
    threads: int = 1,
    progress: Callable[[int], object] | None = None,
) -> ScheduledStep | None:
    """Find the largest batch for which a schedule within a memory is found.

    No batch above the last whose lower bound fits is tried; no solver runs if the lean schedule fits, or a schedule
    found for another batch. O(log batch) calls of the solver; of none for ``"lean"``.

    Parameters
    ----------
    memory
        Bytes that the step may have alive, what is retained included.
    retained
        Bytes that the program keeps from step to step; None: the resident values of each batch's step.
    solver, time_limit, threads
        Passed on to `stowplan.scheduling.schedule`; the time limit is each call's.
    progress
        Called with each batch for which a solver runs.

    Returns
    -------
    The batch with its schedules; None if not even a batch of 1 fits.

    Raises
    ------
    GraphError
        A larger batch needs no more bytes, so that there is no largest one.
    """
    tried: list[Solution] = []

    def left(graph: StepGraph) -> int:
        return memory - (graph.resident_bytes if retained is None else retained)

    def bound_fits(batch: int) -> bool:
        graph = model.at(batch)
        return bound_schedules(graph) <= left(graph)

    def solved(graph: StepGraph, batch: int) -> bool:
        if solver == "lean" or left(graph) < 0:
            return False
        if progress is not None:
            progress(batch)
        one = solver if graph.has_phases() else "lean"
        try:
            tried.append(schedule(graph, left(graph), one, time_limit, threads=threads))
        except BudgetError:
            return False
        return True

    def fits(batch: int) -> bool:
        graph = model.at(batch)
        quick = simulate(graph, lean_schedule(graph)).peak <= left(graph) or _fitting(
            graph, tried, left(graph)
        )
        return bool(quick) or solved(graph, batch)

    batch = _last(fits, model, 1 << _last(bound_fits, model).bit_length())
    if not batch:
        return None
    graph = model.at(batch)
    lean = schedule(graph, solver="lean")
    if lean.peak <= left(graph):
        return ScheduledStep(batch, graph, lean, lean)
    solved(graph, batch)  # cheaper, perhaps, than what was found for a smaller batch
    found = _fitting(graph, tried, left(graph))
    return ScheduledStep(batch, graph, lean, min(found, key=lambda s: s.extra_seconds))


def _fitting(graph: StepGraph, tried: list[Solution], memory: int) -> list[Solution]:
    """Return those schedules, found for other batches, that keep to a memory in this one, as solutions of this one."""
    found = []
    for one in tried:
        try:
            outcome = simulate(graph, one.schedule)
        except ScheduleError:  # nothing is left of a value to pack
            continue
        if outcome.peak <= memory:
            found.append(replace(one, outcome=outcome, lower_bound=None, optimal=False))
    return found


def _last(fits: Callable[[int], bool], model: GraphModel, end: int = 0) -> int:
    """Return the largest batch that fits, below ``end`` if it is given."""
    if not model.grows:
        raise GraphError("no value grows with the batch; expected step graphs of different batch sizes")
    batch = last_that(fits, _MOST, end)
    if batch >= _MOST:
        raise GraphError(f"a batch of {batch:,} fits, too; expected values in use that grow with the batch")
    return batch
