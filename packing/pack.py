"""From a problem to a validated placement."""

from __future__ import annotations

import time

import numpy as np

from ..errors import ConflictError, ProblemError
from . import heuristics as heuristics  # registers its solvers
from . import large as large
from . import search as search
from .bounds import lower_bound
from .check import check_fast
from .placement import Placement, peak_of
from .problem import Problem
from .registry import Options, find

# Members of "auto", cheapest first: each is tried until one meets the lower bound, and the best wins.
AUTO = ("best_fit", "greedy_by_size")


def pack(
    problem: Problem,
    solver: str = "auto",
    time_limit: float | None = None,
    threads: int = 1,
    seed: int = 0,
) -> Placement:
    """Place the blocks of a problem so that the peak is small.

    Deterministic for equal arguments. The placement has passed `check_fast`.

    Parameters
    ----------
    problem
        n blocks.
    solver
        A name in `solvers`, or ``"auto"``: the best of its members, the first of equals, stopping as soon as
        one meets the lower bound.
    time_limit
        Wall-clock seconds, 0 or more, for solvers that could go on for ever; the heuristics always finish.
    threads
        Threads that a solver may use, 1 or more.
    seed
        For solvers that draw random numbers.

    Raises
    ------
    UnknownSolverError
        Listing the names that exist.
    ProblemError
        Two fixed blocks conflict, or an argument is out of range.
    """
    if time_limit is not None and not time_limit >= 0:
        raise ProblemError(f"time_limit is {time_limit}; expected seconds, 0 or more, or None")
    if threads < 1:
        raise ProblemError(f"threads is {threads}; expected 1 or more")
    began = time.perf_counter()
    names = AUTO if solver == "auto" else (solver,)
    chosen = [(name, find(name)) for name in names]
    _refuse_overlapping_fixed(problem)
    bound = lower_bound(problem)
    options = Options(time_limit, threads, seed)
    best: tuple[int, str, np.ndarray] | None = None
    for name, solve in chosen:
        offsets = np.array(solve(problem, options), dtype=np.int64)
        check_fast(problem, offsets)
        peak = peak_of(problem, offsets)
        if best is None or peak < best[0]:
            best = (peak, name, offsets)
        if peak == bound:
            break
    assert best is not None  # there is always a member
    peak, name, offsets = best
    offsets.flags.writeable = False
    return Placement(offsets, peak, bound, peak == bound, name, time.perf_counter() - began)


def _refuse_overlapping_fixed(problem: Problem) -> None:
    rows = np.flatnonzero(problem.fixed >= 0)
    if len(rows) < 2:
        return
    mine = np.isin(problem.gaps[:, 0], rows)
    gaps = problem.gaps[mine].copy()
    gaps[:, 0] = np.searchsorted(rows, gaps[:, 0])
    names = [f"{i}" if problem.id is None else problem.id[i] for i in rows]
    part = Problem(problem.size[rows], problem.start[rows], problem.end[rows], gaps=gaps, id=names)
    try:
        check_fast(part, problem.fixed[rows])
    except ConflictError as error:
        pair = tuple(int(rows[k]) for k in error.pair)
        raise ProblemError(
            f"the fixed offsets of blocks {pair[0]} and {pair[1]} contradict each other: {error}"
        ) from None
