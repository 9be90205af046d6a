"""Independent components of a problem: blocks that share no moment with the rest can be packed alone.

::

    bytes   ####   |  ##        no block is alive on both sides of the bar: the peak is the greater of the
            #  ### | ####       two peaks, and only the component above the target needs more work
            +------+--------> clock

O(n log n).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps

import numpy as np

from .bounds import lower_bound
from .placement import peak_of
from .problem import COLUMNS, IntArray, Problem
from .registry import Answer, PackingOptions


def components(problem: Problem) -> list[IntArray]:
    """Return the rows of each component, by rising time; a block that never occupies a byte is in none."""
    pieces = problem.pieces()
    rows = np.flatnonzero(np.diff(pieces.first))
    if not len(rows):
        return []
    start, end = pieces.start[pieces.first[rows]], pieces.end[pieces.first[rows + 1] - 1]
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])
    cuts = np.flatnonzero(start[order][1:] >= reach[:-1]) + 1
    return [np.sort(rows[component]) for component in np.split(order, cuts)]


def restricted(problem: Problem, rows: IntArray) -> Problem:
    """Return the problem of these rows alone, rising, with their gaps, alignment and fixed offsets."""
    gaps = problem.gaps[np.isin(problem.gaps[:, 0], rows)].copy()
    gaps[:, 0] = np.searchsorted(rows, gaps[:, 0])
    names = None if problem.id is None else [problem.id[i] for i in rows.tolist()]
    return Problem(**{name: getattr(problem, name)[rows] for name in COLUMNS}, gaps=gaps, id=names)


def by_component(
    solve: Callable[[Problem, PackingOptions], Answer],
) -> Callable[[Problem, PackingOptions], Answer]:
    """Let an improving solver see only the components that end above the target, one after the other.

    A lower bound that it proves for a component holds for the whole. The time limit is that of all components together.
    """

    @wraps(solve)
    def solver(problem: Problem, options: PackingOptions) -> Answer:
        assert options.incumbent is not None  # the registry says that this solver improves one
        began = time.monotonic()
        # A block that never occupies a byte is in no component.
        alive = np.diff(problem.pieces().first) > 0
        offsets = np.where(alive, options.incumbent, np.maximum(problem.fixed, 0))
        proved = lower_bound(problem)
        for rows in components(problem):
            component = restricted(problem, rows)
            proved = max(
                proved, lower_bound(component)
            )  # it may have a common alignment that the whole has not
            target = max(options.target, proved)
            if peak_of(component, offsets[rows]) <= target:
                continue
            limit = options.time_limit
            if limit is not None:
                limit = max(0.0, limit - (time.monotonic() - began))
            rest = peak_of(problem, np.where(np.isin(np.arange(len(problem)), rows), -problem.size, offsets))

            def report(peak: int, rest: int = rest) -> bool:
                return options.report is None or options.report(max(peak, rest))

            answer = solve(
                component,
                replace(options, incumbent=offsets[rows], target=target, time_limit=limit, report=report),
            )
            proved = max(proved, answer.lower_bound)
            if options.capacity is not None and proved > options.capacity:
                return Answer(None, proved, answer.interrupted)
            if answer.offsets is not None and peak_of(component, answer.offsets) < peak_of(
                component, offsets[rows]
            ):
                offsets[rows] = answer.offsets
            if answer.interrupted:
                return Answer(offsets, proved, True)
        return Answer(offsets, proved)

    return solver
