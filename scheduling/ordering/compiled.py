"""The compiled solvers; ``core/order/`` tells how each works.

========  ==========================================================================================================
greedy    list scheduling: always the operator after which the fewest bytes are alive. The baseline
exact     depth first over the sets of operators that have run, from the lower bound upwards; proves what it finishes
local     windows of the best order are put in order again by the exact search
auto      greedy, then rounds of exact and local, each with four times the work of the one before
========  ==========================================================================================================

All but the baseline begin with the graph made smaller: operators that may always run one right after the other are
joined. Each gives a lower bound, stops when the peak meets it, and else at the time limit; without one, after a number
of rounds that only small graphs live to see.
"""

from __future__ import annotations

from .. import _ordering
from .problem import OrderProblem
from .registry import Answer, OrderingOptions, Solver, register


def _compiled(name: str) -> Solver:
    def solve(problem: OrderProblem, options: OrderingOptions) -> Answer:
        report = options.report
        found = _ordering.solve(
            name,
            problem.workspace.tolist(),
            problem.before.rows(),
            problem.size.tolist(),
            problem.kept.tolist(),
            problem.writers.rows(),
            problem.users.rows(),
            options.time_limit,
            None if report is None else lambda peak, bound, _: report(peak, bound),
        )
        return Answer(*found)

    solve.__name__ = name
    return solve


for _name in _ordering.SOLVERS:
    register(_name)(_compiled(_name))
