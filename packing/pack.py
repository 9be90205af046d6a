"""From a problem to a validated placement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, NoReturn

import numpy as np

from ..common.errors import ConflictError, InfeasibleError, ProblemError, UnsupportedConstraintError
from . import portfolio, solvers  # noqa: F401 (solvers register themselves)
from .bounds import Bound, bound
from .check import check_fast
from .components import restricted
from .constraints import Reduction, reduce
from .placement import Placement, Status, peak_of
from .problem import IntArray, Problem
from .registry import Answer, PackingOptions, Solver, find, improves, name_of


class PackingProgress(NamedTuple):
    """The state of a solution: the best peak so far, the lower bound, its solver, and seconds since the call."""

    peak: int
    lower_bound: int
    solver: str
    seconds: float


def pack(
    problem: Problem,
    solver: str = "auto",
    time_limit: float | None = None,
    threads: int = 1,
    seed: int = 0,
    *,
    capacity: int | None = None,
    in_haste: bool = False,
    progress: Callable[[PackingProgress], object] | None = None,
) -> Placement:
    """Place the blocks of a problem so that the peak is small.

    Deterministic for equal arguments, unless the time limit cuts it short. The placement has passed `check_fast`.
    Ctrl-C (KeyboardInterrupt) ends the search: the best placement found so far is returned, if there is one.

    Parameters
    ----------
    problem
        n blocks.
    solver
        A name in ``solvers``, or ``"auto"``: the best of its members, the first of equals, stopping as soon as
        one meets the lower bound.
    time_limit
        Wall-clock seconds, 0 or more. A solver that has no placement by then gives way to ``best_fit``, which always
        finishes, as the first run of ``best_fit_orders`` does.
    threads
        Threads that a solver may use, 1 or more.
    seed
        For solvers that draw random numbers.
    capacity
        Bytes that the arena may have: stop as soon as the peak is no greater.
    in_haste
        Have ``auto`` use less time and memory, as for a plan that has to pay for itself: some tenths of a second up to
        some ten thousand blocks, and some MB.
    progress
        Called after every improvement; it ends the search, with the best so far, by returning False.

    Raises
    ------
    InfeasibleError
        No placement fits the capacity: it is below the lower bound, or a search has proved it.
    UnknownSolverError
        Listing the names that exist.
    UnsupportedConstraintError
        The solver cannot honour a constraint of the problem.
    ProblemError
        Constraints contradict each other, or an argument is out of range.

    Examples
    --------
    Five blocks, 20 bytes in all, fit into an arena of 12 bytes, and into no smaller one:

    >>> from stowplan.packing import Problem, pack
    >>> problem = Problem(size=[4, 4, 4, 2, 6], start=[0, 0, 0, 4, 4], end=[7, 3, 4, 6, 7])
    >>> placement = pack(problem)
    >>> placement.peak, placement.optimal
    (12, True)
    """
    if time_limit is not None and not time_limit >= 0:
        raise ProblemError(f"time_limit is {time_limit}; expected seconds, 0 or more, or None")
    if threads < 1:
        raise ProblemError(f"threads is {threads}; expected 1 or more")
    if capacity is not None and capacity < 0:
        raise ProblemError(f"capacity is {capacity}; expected 0 or more bytes, or None")
    if solver != "auto":
        solver = name_of(solver)
    ties = reduce(problem) if problem.constrained else None
    _refuse_overlapping_fixed(problem, ties)
    plain = problem if ties is None else ties.problem
    run = _Run(plain, bound(problem, ties), ties is None or ties.exact, capacity, progress)
    options = PackingOptions(time_limit, threads, seed, target=run.target, capacity=capacity)
    try:
        if solver == "auto":
            steps = portfolio.steps(plain, options, in_haste, len(problem.apart))
            for name, its_options in steps:
                run.attempt(name, find(name), its_options)
                if in_haste and portfolio.is_near(problem, run.excess):
                    break
        else:
            for name in ("best_fit", "best_fit_orders") if improves(solver) else ():
                run.attempt(name, find(name), options)
            run.attempt(solver, find(solver), options)
        if run.best is None and capacity is None:  # the time was over
            run.attempt("best_fit", find("best_fit"), options)
    except _Stop:
        pass
    except KeyboardInterrupt:
        if run.best is None:
            raise
    placement = run.placement()
    if ties is None:
        return placement
    offsets = ties.expand(placement.offsets)
    check_fast(problem, offsets)
    offsets.flags.writeable = False
    return replace(placement, offsets=offsets)


class _Stop(Exception):  # noqa: N818 (no error)
    """Nothing better is wanted, or nothing better exists."""


class _Run:
    """The best placement so far of one call, and what is known about how good it is.

    ``problem`` has no ties. ``exact``: what is proved of it holds for the caller's problem, whose bound is ``least``.
    """

    def __init__(
        self,
        problem: Problem,
        least: Bound,
        exact: bool,
        capacity: int | None,
        progress: Callable[[PackingProgress], object] | None,
    ) -> None:
        self._began = time.perf_counter()
        self._problem, self._exact = problem, exact
        self._capacity, self._progress = capacity, progress
        self._lower_bound = least.bytes
        self._witness = _witness(problem, least)
        if capacity is not None and capacity < least.bytes:
            raise InfeasibleError(
                f"a capacity of {capacity} bytes is below the lower bound of {least.bytes}: {self._witness}"
            )
        self.target = max(least.bytes, capacity or 0)
        self.best: IntArray | None = None
        self._peak = 0
        self._reported: int | None = None  # the last peak that the caller was given
        self._solver = ""

    def attempt(self, name: str, solve: Solver, options: PackingOptions) -> None:
        """Run a solver and keep what is better.

        Raises
        ------
        _Stop
            The target is met.
        """
        options = replace(options, incumbent=self.best, report=lambda peak: self._report(peak, name))
        answer = solve(self._problem, options)
        offsets, proved, interrupted = answer if isinstance(answer, Answer) else (answer, 0, False)
        if proved > self._lower_bound and self._exact:
            self._lower_bound, self._witness = proved, f"a search found nothing below {proved} bytes"
        if offsets is not None:
            self._keep(name, np.array(offsets, dtype=np.int64))
        if self._capacity is not None and self._lower_bound > self._capacity:
            raise InfeasibleError(
                f"no placement fits a capacity of {self._capacity} bytes: a search was finished without one"
            )
        if self.best is not None and self._peak <= max(self._lower_bound, self._capacity or 0):
            raise _Stop
        if interrupted:
            raise KeyboardInterrupt

    def _keep(self, name: str, offsets: IntArray) -> None:
        check_fast(self._problem, offsets)
        peak = peak_of(self._problem, offsets)
        if self.best is None or peak < self._peak:
            self.best, self._peak, self._solver = offsets, peak, name
            if not self._report(peak, name):
                raise _Stop

    def _report(self, peak: int, name: str) -> bool:
        """Tell the caller of a lower peak, once; a solver may have found it, but not handed it over yet."""
        if self._progress is None or (self._reported is not None and peak >= self._reported):
            return True
        self._reported = peak
        seconds = time.perf_counter() - self._began
        return self._progress(PackingProgress(peak, self._lower_bound, name, seconds)) is not False

    @property
    def excess(self) -> float:
        """What the best peak has above the lower bound, as a share of it."""
        return self._peak / max(self._lower_bound, 1) - 1

    def placement(self) -> Placement:
        """Return the best placement, with what is known about it."""
        if self.best is None:
            raise InfeasibleError(
                f"no placement within {self._capacity} bytes was found in time; the lower bound is "
                f"{self._lower_bound} bytes, so one may exist"
            )
        self.best.flags.writeable = False
        status: Status = "feasible"
        if self._peak == self._lower_bound:
            status = "optimal"
        elif self._capacity is not None and self._peak > self._capacity:
            status = "unknown"
        return Placement(
            self.best,
            self._peak,
            self._lower_bound,
            self._solver,
            time.perf_counter() - self._began,
            status,
            self._witness,
        )


def _witness(problem: Problem, least: Bound) -> str:
    if not len(problem):
        return "there are no blocks"
    if least.moment is None:
        return f"two blocks that are kept apart need {least.bytes} bytes"
    return f"the blocks alive at tick {least.moment} need {least.bytes} bytes"


def _refuse_overlapping_fixed(problem: Problem, ties: Reduction | None) -> None:
    """Look at the blocks themselves first, to name them; then at what ties make of them."""
    if (error := _fixed_conflict(problem)) is not None:
        _refuse_fixed([str(row) for row in error.pair], error)
    if ties is None or (error := _fixed_conflict(ties.problem)) is None:
        return
    if not ties.exact:
        raise UnsupportedConstraintError(
            f"a fixed block lies in the hole that a contiguous group leaves; no solver can do that: {error}"
        )
    members = [np.flatnonzero(ties.block == k).tolist() for k in error.pair]
    _refuse_fixed([str(rows if len(rows) > 1 else rows[0]) for rows in members], error)


def _fixed_conflict(problem: Problem) -> ConflictError | None:
    """Return the first conflict of fixed blocks."""
    rows = np.flatnonzero(problem.fixed >= 0)
    try:
        check_fast(restricted(problem, rows), problem.fixed[rows])
    except ConflictError as error:
        one, other = (int(rows[k]) for k in error.pair)
        return ConflictError(str(error), (one, other))
    return None


def _refuse_fixed(names: list[str], error: ConflictError) -> NoReturn:
    raise ProblemError(
        f"the fixed offsets of blocks {names[0]} and {names[1]} contradict each other: {error}"
    )
