"""From a step graph to a validated order of its operators with a small live peak."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...common.errors import ScheduleError
from ..graph import IntArray, StepGraph
from ..schedule import Schedule, Way
from ..simulate import simulate
from . import compiled  # noqa: F401 (solvers register themselves)
from .problem import OrderProblem
from .registry import OrderingOptions, find


class OrderingProgress(NamedTuple):
    """The state of a search: the best peak so far and the lower bound, in bytes, and seconds since the call."""

    peak: int
    lower_bound: int
    seconds: float


@dataclass(frozen=True, eq=False)
class OrderSolution:
    """An order of the n operators of a step graph. Bytes are without the resident storages.

    Attributes
    ----------
    order
        The operators as they run, int64 (n,), read-only.
    peak
        Bytes: the live peak in this order.
    before
        Bytes: the live peak in the order recorded.
    lower_bound
        Bytes: no order has a smaller peak.
    optimal
        Whether the peak is proved to be the least.
    solver
        Name of the solver that found it; ``"joined"`` where joining operators that may always run one right after the
        other was enough, ``"recorded"`` where nothing is better than the order recorded.
    seconds
        Wall-clock time of the whole call.
    states
        Sets of operators that were looked at.
    """

    order: IntArray
    peak: int
    before: int
    lower_bound: int
    optimal: bool
    solver: str
    seconds: float
    states: int

    @property
    def saved(self) -> float:
        """The share of the recorded order's peak that this one does without."""
        return 1 - self.peak / self.before if self.before else 0.0

    @property
    def gap(self) -> float:
        """Peak / lower bound - 1: what an optimum could save at most; 0 where both are 0."""
        if self.lower_bound:
            return self.peak / self.lower_bound - 1
        return float("inf") if self.peak else 0.0


def order(
    graph: StepGraph,
    solver: str = "auto",
    time_limit: float | None = 10.0,
    progress: Callable[[OrderingProgress], object] | None = None,
) -> OrderSolution:
    """Order the operators of a step so that its live peak, without recomputation, is small.

    Never worse than the order recorded. Deterministic, unless the time limit cuts it short. The order has passed
    ``stowplan.scheduling.require_valid``, and the peak is that of `stowplan.scheduling.simulate`. Ctrl-C ends the
    search, and the best order so far is returned.

    Parameters
    ----------
    graph
        n operators.
    solver
        A name in ``stowplan.scheduling.ordering.solvers``.
    time_limit
        Wall-clock seconds, 0 or more, or None: no limit.
    progress
        Called at every improvement of the peak or the bound; it ends the search by returning False.

    Raises
    ------
    UnknownSolverError
        Listing the names that exist.
    ScheduleError
        The time limit is negative, or the graph is too large for the solver named.
    MissingDependencyError
        The solver needs an extra that is not installed.
    """
    if time_limit is not None and not time_limit >= 0:
        raise ScheduleError(f"time_limit is {time_limit}; expected seconds, 0 or more, or None")
    solve = find(solver)
    began = time.perf_counter()

    def report(peak: int, bound: int) -> object:
        return progress is None or progress(OrderingProgress(peak, bound, time.perf_counter() - began))

    answer = solve(OrderProblem.of(graph), OrderingOptions(time_limit, report))
    before = _peak(graph, np.arange(len(graph), dtype=np.int64))
    found, peak, found_by = answer.order, _peak(graph, answer.order), answer.found_by
    if peak >= before:
        found, peak, found_by = np.arange(len(graph), dtype=np.int64), before, "recorded"
    found.flags.writeable = False
    return OrderSolution(
        found,
        peak,
        before,
        answer.lower_bound,
        peak == answer.lower_bound,
        found_by,
        time.perf_counter() - began,
        answer.states,
    )


def _peak(graph: StepGraph, order: IntArray) -> int:
    keep_all = np.full(graph.values, int(Way.KEPT), dtype=np.int64)
    return simulate(graph, Schedule(order, keep_all)).peak
