"""The integer program for order and addresses together, given to HiGHS or CBC through PuLP. For small graphs.

It is OLLA's for the order (`stowplan.papers.olla.ilp`), with p[b, t] saying that block b, a storage or a
workspace, exists at step t, and with an address a[b] for each block::

    minimise u   subject to   the rows of the order
                              a[b] + size[b] <= u
                              under[b, c] + under[c, b] >= p[b, t] + p[c, t] - 1        at every step t: of two blocks
                              a[b] + size[b] <= a[c] + (1 - under[b, c]) W              there at once, one is under

Steiner et al. 2022 (arXiv 2210.12924), section 4.3: their variables for pairs of tensors, joined here with those of the
order. W is the best arena known, where the solver starts; u is at least the lower bound of all orders' peaks. Sizes are
in units of their greatest common divisor. Exponential: for about a dozen operators.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ...packing.milp import DEFAULT_LIMIT, require_pulp, solve_program
from ...scheduling.graph import IntArray
from ...scheduling.ordering.problem import OrderProblem
from ...scheduling.ordering.registry import Answer
from .ilp import OrderProgram, order_of

# Pairs of blocks, times operators, at most.
MOST_ROWS = 20_000


class JointAnswer(NamedTuple):
    """An order, or None where no better one was found; and an arena below which no order can be packed."""

    order: IntArray | None
    lower_bound: int


def fits(problem: OrderProblem) -> bool:
    """Whether the program is small enough to be tried."""
    blocks = len(problem.size) + int((problem.workspace > 0).sum())
    return blocks * (blocks - 1) // 2 * len(problem) <= MOST_ROWS


def joint_ilp(
    problem: OrderProblem, start: IntArray, offsets: IntArray, lower_bound: int, time_limit: float | None
) -> JointAnswer:
    """Find the order whose blocks can be packed into the least arena, below the one that is known.

    Parameters
    ----------
    problem
        n operators.
    start
        An order to start from, int64 (n,).
    offsets
        A placement of its blocks, int64 (k,): storages, then the workspaces that have bytes.
    lower_bound
        Bytes below which no order's peak is.
    time_limit
        Wall-clock seconds, or None: the solver's own choice.

    Raises
    ------
    MissingDependencyError
        PuLP is not installed, or it finds neither HiGHS nor CBC.
    """
    pulp = require_pulp("joint")
    sizes = np.concatenate([problem.size, problem.workspace[problem.workspace > 0]])
    unit = max(1, int(np.gcd.reduce(sizes)))
    arena = int((offsets + sizes).max(initial=0))
    program = pulp.LpProblem("joint", pulp.LpMinimize)
    peak = pulp.LpVariable("u", -(-lower_bound // unit), arena // unit)
    peak.setInitialValue(arena // unit)
    program += peak
    rows = OrderProgram(problem, Answer(start, lower_bound, ""))
    x = rows.runs(program)
    there = rows.preserved(program, x)
    for v in np.flatnonzero(problem.workspace > 0).tolist():  # a workspace is there while its operator runs
        there.append({t: x[v, t] for t in range(len(problem)) if (v, t) in x})
    _apart(program, there, (sizes // unit).tolist(), (offsets // unit).tolist(), peak)
    if not solve_program(program, DEFAULT_LIMIT if time_limit is None else time_limit, 1):
        return JointAnswer(None, 0)
    proved = round(peak.varValue) * unit if program.sol_status == pulp.LpSolutionOptimal else 0
    return JointAnswer(order_of(x, len(problem)), proved)


def _apart(program: Any, there: list[dict[int, Any]], size: list[int], start: list[int], peak: Any) -> None:
    """Add addresses, and the rows by which blocks that exist at once have different ones."""
    import pulp

    most = peak.upBound
    address = [pulp.LpVariable(f"a{b}", 0, most - size[b]) for b in range(len(size))]
    for b, variable in enumerate(address):
        variable.setInitialValue(start[b])
        program += variable + size[b] <= peak
    for b, c in combinations((b for b in range(len(size)) if size[b]), 2):
        under = pulp.LpVariable(f"under{b}_{c}", cat="Binary")
        above = pulp.LpVariable(f"under{c}_{b}", cat="Binary")
        under.setInitialValue(int(start[b] + size[b] <= start[c]))
        above.setInitialValue(int(start[c] + size[c] <= start[b]))
        for t in there[b].keys() & there[c].keys():
            program += under + above >= there[b][t] + there[c][t] - 1
        program += address[b] + size[b] - address[c] <= most * (1 - under)
        program += address[c] + size[c] - address[b] <= most * (1 - above)
