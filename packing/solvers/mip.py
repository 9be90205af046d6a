"""The mixed-integer program of the paper, given to HiGHS or CBC through PuLP.

::

    minimise u   subject to   x_i + size_i <= u                            for every block
                              x_i + size_i <= x_j + z_ij W                 for every pair alive together:
                              x_j + size_j <= x_i + (1 - z_ij) W           z_ij tells which one is above
                              x_i >= 0, z_ij binary

Sekiyama et al. 2018, section 3.1 (arXiv 1804.10001). What differs:

- W is as small as each pair allows, from the peak of the best heuristic placement, which is also the solver's
  starting point; and u is at least the lower bound.
- A pair with gaps has one z for each way in which their pieces meet. A block whose alignment exceeds the common
  divisor of all sizes is an integer multiple of it; the offset of a fixed block is a constant.
- Sizes are divided by their common divisor, the unit. The floating-point answer only tells what lies above what (z):
  the offsets are computed from that in integers, as low as they can be. That nothing is below them is believed up to
  `MOST_PROVED` units alone: at 2**32, HiGHS called 5 of 40 peaks the least that were not.
- Independent components are solved one after the other, and only those that are above the target.

Exponential. The program has a row pair for every pair of blocks alive together, so components with more than
`MOST_PAIRS` of them are left as they are, and so are those with numbers above `MOST_UNITS`, which HiGHS does not take.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from ..bounds import lower_bound
from ..components import by_component
from ..milp import DEFAULT_LIMIT, require_pulp, solve_program
from ..placement import peak_of
from ..problem import IntArray, Problem
from ..registry import Answer, PackingOptions, register

MOST_PAIRS = 50_000
MOST_PROVED, MOST_UNITS = 2**28, 2**49


@register("mip", improves=True)
@by_component
def mip(problem: Problem, options: PackingOptions) -> Answer:
    """Minimise by mixed-integer programming; the bound is proved where the solver finishes.

    Raises
    ------
    MissingDependencyError
        PuLP is not installed, or it finds neither HiGHS nor CBC.
    """
    require_pulp("mip")
    assert options.incumbent is not None  # the registry says that this solver improves one
    limit = DEFAULT_LIMIT if options.time_limit is None else options.time_limit
    if not limit:
        return Answer(options.incumbent, 0)
    target = max(options.target, lower_bound(problem))
    return _solve(problem, options.incumbent, target, time.monotonic() + limit, options.threads)


class _Pairs(NamedTuple):
    """Pieces that meet: either ``x_j >= x_i + above`` or ``x_i >= x_j + below``."""

    i: IntArray
    j: IntArray
    above: IntArray
    below: IntArray


def _solve(problem: Problem, start: IntArray, target: int, deadline: float, threads: int) -> Answer:
    pairs, unit = _pairs(problem), _unit(problem)
    most = peak_of(problem, start) // unit
    if pairs is None or max(most, int(problem.alignment.max()) // unit) > MOST_UNITS:
        return Answer(start, 0)
    import pulp

    size, lowest = problem.size // unit, -(-target // unit)
    program = pulp.LpProblem("placement", pulp.LpMinimize)
    peak = pulp.LpVariable("u", lowest, most)
    peak.setInitialValue(most)
    program += peak
    x: list[Any] = []
    for i in range(len(problem)):
        step = int(problem.alignment[i]) // unit
        if problem.fixed[i] >= 0:
            x.append(int(problem.fixed[i]) // unit)
            program += x[i] + int(size[i]) <= peak
            continue
        whole = step > 1 and not bool((problem.size % problem.alignment[i] == 0).all())
        variable = pulp.LpVariable(f"x{i}", 0, None, "Integer" if whole else "Continuous")
        variable.setInitialValue(int(start[i]) // unit // (step if whole else 1))
        x.append(step * variable if whole else variable)
        program += x[i] + int(size[i]) <= peak
    z = []
    for k, (i, j, above, below) in enumerate(zip(*(c.tolist() for c in pairs), strict=True)):
        lower = pulp.LpVariable(f"z{k}", cat="Binary")
        lower.setInitialValue(int(start[j] < start[i] + above))
        above, below = above // unit, below // unit
        program += x[i] + above - x[j] <= (most - int(size[i]) + above) * lower
        program += x[j] + below - x[i] <= (most - int(size[j]) + below) * (1 - lower)
        z.append(lower)
    if not solve_program(program, max(deadline - time.monotonic(), 0.01), threads):
        return Answer(start, 0)
    claimed = round(peak.varValue) * unit
    best = _settled(problem, pairs, np.array([v.varValue > 0.5 for v in z], dtype=bool))
    if best is None or peak_of(problem, best) > peak_of(problem, start):
        best = start
    reached = peak_of(problem, best)
    if program.sol_status != pulp.LpSolutionOptimal:
        return Answer(best, 0)
    if claimed < reached < peak_of(problem, start) and deadline > time.monotonic():
        # The solver's tolerance, a millionth of W, let something overlap. From the better start W is smaller.
        return _solve(problem, best, target, deadline, threads)
    # Below the cut nothing was looked for.
    return Answer(best, reached if claimed == reached > target and most <= MOST_PROVED else 0)


def _pairs(problem: Problem) -> _Pairs | None:
    """List all pairs of pieces that meet, each distinct way once; None if there are too many."""
    pieces = problem.pieces()
    of = np.repeat(np.arange(len(problem)), np.diff(pieces.first))
    found: dict[tuple[int, int, int, int], None] = {}
    by_start = np.argsort(pieces.start, kind="stable")
    live = np.empty(0, dtype=np.int64)
    for k in by_start.tolist():
        live = live[pieces.end[live] > pieces.start[k]]
        for other in live.tolist():
            a, b = (k, other) if of[k] < of[other] else (other, k)
            if of[a] == of[b] or (problem.fixed[of[a]] >= 0 and problem.fixed[of[b]] >= 0):
                continue
            above, below = pieces.upper[a] - pieces.lower[b], pieces.upper[b] - pieces.lower[a]
            found[int(of[a]), int(of[b]), int(above), int(below)] = None
        if len(found) > MOST_PAIRS:
            return None
        live = np.append(live, k)
    return _Pairs(*np.array(list(found), dtype=np.int64).reshape(-1, 4).T)


def _unit(problem: Problem) -> int:
    """Return a number of bytes that divides every length and every offset that matters."""
    pieces = problem.pieces()
    columns = (problem.size, problem.alignment, np.maximum(problem.fixed, 0), pieces.lower, pieces.upper)
    return max(1, int(np.gcd.reduce(np.concatenate(columns))))


def _settled(problem: Problem, pairs: _Pairs, j_is_lower: np.ndarray) -> IntArray | None:
    """Find the lowest offsets at which every pair lies as decided; None where no offsets do."""
    low = np.where(j_is_lower, pairs.j, pairs.i)
    high = np.where(j_is_lower, pairs.i, pairs.j)
    distance = np.where(j_is_lower, pairs.below, pairs.above)
    x = np.maximum(problem.fixed, 0)
    for _ in range(len(problem) + 1):
        least = x.copy()
        np.maximum.at(least, high, x[low] + distance)
        least += -least % problem.alignment
        if (least == x).all():
            return x
        if ((problem.fixed >= 0) & (least != problem.fixed)).any():
            return None
        x = least
    return None
