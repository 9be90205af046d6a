"""From a step graph and a budget to a schedule, by a solver; and the curve over all budgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..common.errors import BudgetError, ScheduleError
from .bounds import bound_schedules
from .graph import StepGraph
from .peak_explanation import floor_of
from .registry import Answer, SchedulingOptions, find
from .schedule import Rates, Schedule, require_valid
from .simulate import Outcome, simulate
from .solvers import greedy, lean  # noqa: F401 (solvers register themselves)
from .unsafe_recomputation import without_hazards


class SchedulingProgress(NamedTuple):
    """The state of a solution: a schedule's peak and extra seconds, its solver, and seconds since the call."""

    peak: int
    extra_seconds: float
    solver: str
    seconds: float


@dataclass(frozen=True, eq=False)
class Solution:
    """A schedule, and how good it is known to be.

    Attributes
    ----------
    schedule
        A valid one.
    outcome
        The result of `simulate`.
    lower_bound
        No schedule of this graph has a smaller peak, in bytes (`bound_schedules`); None where no bound is known.
    optimal
        Whether no other schedule with this order, of values kept and dropped, keeps to the budget in less time.
    solver
        The solver that found it.
    seconds
        Wall-clock time that solving took.
    """

    schedule: Schedule
    outcome: Outcome
    lower_bound: int | None
    optimal: bool
    solver: str
    seconds: float

    @property
    def peak(self) -> int:
        """Bytes, without the resident ones."""
        return self.outcome.peak

    @property
    def extra_seconds(self) -> float:
        """Seconds that the schedule adds to the step."""
        return self.outcome.extra_seconds


def schedule(
    graph: StepGraph,
    budget: int | None = None,
    solver: str = "auto",
    time_limit: float | None = None,
    rates: Rates | None = None,
    swap: bool = False,
    progress: Callable[[SchedulingProgress], object] | None = None,
    threads: int = 1,
    *,
    reorder: bool = True,
) -> Solution:
    """Choose a schedule that keeps to a budget and adds as little time as can be found.

    Deterministic for equal arguments, unless the time limit cuts it short, or, in a step without phases, the two
    seconds that the search for its order has. Ctrl-C (KeyboardInterrupt) ends the search: the best schedule found so
    far is returned, if it keeps to the budget.

    Parameters
    ----------
    graph
        n operators, m values.
    budget
        Bytes that may be alive at once, without the resident ones. None: what costs no time, or, for a named policy
        (``"cheap"``, ``"selective"``), what that policy determines.
    solver
        A name in ``stowplan.scheduling.registry.solvers``, or ``"auto"``: ``"lean"``, and ``"greedy"`` where that does
        not keep to the budget.
    time_limit
        Wall-clock seconds, 0 or more, for the search; None: the solvers' own choice, some seconds for thousands of
        operators.
    rates
        Bytes a second of swapping and packing; None: the defaults.
    swap
        Whether values may be swapped, where that costs less than recomputing them.
    progress
        Called after improvements; it ends the search, with the best so far, by returning False.
    threads
        Threads that a solver may use, 1 or more.
    reorder
        Whether operators of the backward pass may change places.

    Raises
    ------
    BudgetError
        No schedule that was found keeps to the budget; with the least peak that was found, and the schedule that has
        it. Without a time limit, the same call with this peak as its budget returns a schedule.
    UnknownSolverError
        Listing the names that exist.
    NotApplicable
        The solver named does not serve a graph like this one.
    ScheduleError
        An argument is out of range.
    MissingDependencyError
        The solver named needs a package that is not installed.

    Examples
    --------
    The last operator reads the first one's result again. Below 700 bytes that result is dropped and recomputed, which
    adds a second:

    >>> from stowplan.scheduling import StepGraph, schedule
    >>> reads, writes, size = [[], [0], [1], [0, 2]], [[0], [1], [2], [3]], [100, 300, 300, 10]
    >>> graph = StepGraph(reads, writes, size, seconds=[1.0, 1.0, 1.0, 1.0])
    >>> for solution in schedule(graph), schedule(graph, budget=600):
    ...     print(solution.peak, solution.extra_seconds)
    700 0.0
    600 1.0
    """
    options = _options(budget, time_limit, threads, rates, swap, reorder)
    found = _Run(graph, options, progress).solve(solver)
    if budget is not None and found.peak > budget:
        floor = floor_of(graph, found.schedule, rates)
        raise BudgetError(
            f"a budget of {budget} bytes is below what any schedule found needs: the least is {found.peak} bytes "
            f"({found.solver}), and no schedule can be below {found.lower_bound}; in addition to these, "
            f"{graph.resident_bytes} bytes are resident; {floor}",
            found.peak,
            floor,
            found,
        )
    return found


def least(
    graph: StepGraph,
    solver: str = "auto",
    time_limit: float | None = None,
    rates: Rates | None = None,
    swap: bool = False,
    progress: Callable[[SchedulingProgress], object] | None = None,
    threads: int = 1,
    *,
    reorder: bool = True,
) -> Solution:
    """Find the schedule with the smallest peak that can be found, and the least extra time for it.

    The parameters and errors are those of `schedule`.
    """
    options = _options(0, time_limit, threads, rates, swap, reorder)
    return _Run(graph, options, progress).solve(solver)


def curve(
    graph: StepGraph,
    budgets: Sequence[int] | int = 12,
    solver: str = "auto",
    time_limit: float | None = None,
    rates: Rates | None = None,
    swap: bool = False,
    progress: Callable[[SchedulingProgress], object] | None = None,
    threads: int = 1,
    *,
    reorder: bool = True,
) -> list[Solution]:
    """Extra time over memory: solutions from the lean schedule down to the least peak that can be found.

    Each begins with what was found for its neighbours. Peaks fall and extra seconds rise from one to the next. Other
    parameters, and errors, are those of `schedule`.

    Parameters
    ----------
    budgets
        Bytes, or how many budgets to spread evenly between the lean schedule's peak and the least one, 2 or more.
        Budgets below the least are left out.
    time_limit
        Wall-clock seconds for all of it.
    """
    options = _options(0, time_limit, threads, rates, swap, reorder)
    if isinstance(budgets, int) and budgets < 2:
        raise ScheduleError(f"a curve of {budgets} budgets; expected 2 or more")
    began = time.monotonic()
    count = budgets if isinstance(budgets, int) else len(budgets)

    def share(left: int) -> float | None:
        return None if time_limit is None else max(0.0, time_limit - (time.monotonic() - began)) / left

    free = _Run(graph, SchedulingOptions(None, 0.0, rates=options.rates), progress).solve("lean")
    base = replace(options, time_limit=share(count + 1))
    lowest = _Run(graph, base, progress).solve(solver)
    if isinstance(budgets, int):
        step = (free.peak - lowest.peak) / (budgets - 1)
        wanted = [round(free.peak - k * step) for k in range(1, budgets - 1)]
    else:
        wanted = sorted((b for b in budgets if b > lowest.peak), reverse=True)
    found = [free, lowest]
    for k, budget in enumerate(wanted):
        if budget >= free.peak:
            continue
        fitting = min((s for s in found if s.peak <= budget), key=lambda s: s.extra_seconds)
        nearest = min((s for s in found if s.peak > budget), key=lambda s: s.peak)
        options = replace(
            base,
            budget=budget,
            time_limit=share(len(wanted) - k),
            incumbents=(fitting.schedule, nearest.schedule),
        )
        found.append(_Run(graph, options, progress).solve(solver))
    return _monotone(found)


def _options(
    budget: int | None, time_limit: float | None, threads: int, rates: Rates | None, swap: bool, reorder: bool
) -> SchedulingOptions:
    """Return the options of solvers; the arguments, and the error for one out of range, are those of `schedule`."""
    if budget is not None and budget < 0:
        raise ScheduleError(f"budget is {budget}; expected 0 or more bytes, or None")
    if time_limit is not None and not time_limit >= 0:
        raise ScheduleError(f"time_limit is {time_limit}; expected seconds, 0 or more, or None")
    if threads < 1:
        raise ScheduleError(f"threads is {threads}; expected 1 or more")
    return SchedulingOptions(budget, time_limit, threads, rates or Rates(), swap, reorder=reorder)


def _monotone(found: list[Solution]) -> list[Solution]:
    """Leave out every solution that another one matches in memory and time."""
    kept: list[Solution] = []
    for solution in sorted(found, key=lambda s: (s.peak, s.extra_seconds)):
        if not kept or solution.extra_seconds < kept[-1].extra_seconds:
            kept.append(solution)
    return kept[::-1]


class _Run:
    """The best schedule so far of one call."""

    def __init__(
        self,
        graph: StepGraph,
        options: SchedulingOptions,
        progress: Callable[[SchedulingProgress], object] | None,
    ) -> None:
        self._began = time.monotonic()
        self._graph, self._options, self._progress = graph, options, progress
        self._best: Solution | None = None
        self._stopped = self._interrupted = False

    def solve(self, solver: str) -> Solution:
        """Return the best that the solver, or for ``"auto"`` both of them, find."""
        for name in ("lean", "greedy") if solver == "auto" else (solver,):
            if self._best is None or not (self._fits(self._best) or self._over()):
                self._attempt(name)
        best = self._best
        assert best is not None
        if self._interrupted and not self._fits(best):
            raise KeyboardInterrupt
        bound = bound_schedules(self._graph)
        return replace(best, lower_bound=bound, seconds=time.monotonic() - self._began)

    def _attempt(self, name: str) -> None:
        solve = find(name)
        limit = self._options.time_limit
        options = replace(
            self._options,
            time_limit=None if limit is None else max(0.0, limit - (time.monotonic() - self._began)),
            report=lambda peak, seconds: self._report(peak, seconds, name),
        )
        answer = solve(self._graph, options)
        found, optimal, interrupted = answer if isinstance(answer, Answer) else (answer, False, False)
        self._interrupted |= interrupted
        if without_hazards(self._graph, found) is not found:
            found, optimal = without_hazards(self._graph, found), False
        require_valid(self._graph, found)
        outcome = simulate(self._graph, found, self._options.rates)
        if name == "lean":
            optimal = self._options.budget is None or outcome.peak <= self._options.budget
        solution = Solution(found, outcome, None, optimal, name, 0.0)
        if self._best is None or self._rank(solution) < self._rank(self._best):
            self._best = solution
            self._report(outcome.peak, outcome.extra_seconds, name)

    def _rank(self, solution: Solution) -> tuple[int, float, bool]:
        return max(solution.peak, self._options.budget or 0), solution.extra_seconds, not solution.optimal

    def _fits(self, solution: Solution) -> bool:
        return self._options.budget is None or solution.peak <= self._options.budget

    def _over(self) -> bool:
        limit = self._options.time_limit
        late = limit is not None and time.monotonic() - self._began >= limit
        return late or self._stopped or self._interrupted

    def _report(self, peak: int, seconds: float, name: str) -> bool:
        if self._progress is not None:
            elapsed = time.monotonic() - self._began
            if self._progress(SchedulingProgress(peak, seconds, name, elapsed)) is False:
                self._stopped = True
        return not self._stopped
