"""OLLA's integer program for the order of operators, given to HiGHS or CBC through PuLP. For small graphs, to compare.

::

    minimise u   subject to   sum of x[v, t] over t = 1            every operator v runs at one step t,
                              sum of x[v, t] over v = 1            and at every step one operator
                              y[v, t] <= y[w, t - 1]               after each w that it depends on; where
                                                                   y[v, t] = x[v, 0] + ... + x[v, t]
                              p[s, t] >= y[w, t] - y[r, t - 1]     storage s is preserved at t where a writer w has
                                                                   begun and a user r is not done
                              u >= sum of size[s] p[s, t] + workspace[v] x[v, t]

Steiner et al., "OLLA: Optimizing the Lifetime and Location of Arrays to Reduce the Memory Usage of Neural Networks",
2022, section 4 (arXiv 2210.12924): its C[e, t], "tensor e is created at t", is one x for all that an operator writes;
its P[e, t] is p. As there, an operator has an x only for the steps between its earliest and its latest: how many come
before it, and after it. What differs: a storage may have several writers, so p is bound from below instead of from step
to step; one operator runs at a step; the greedy order is where the solver starts.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ...common.errors import ScheduleError
from ...packing.milp import DEFAULT_LIMIT, require_pulp, solve_program
from ...scheduling.graph import IntArray
from ...scheduling.ordering.problem import OrderProblem
from ...scheduling.ordering.registry import Answer, OrderingOptions, find, register

# Variables of the program at most: about 80 operators in a chain of layers.
MOST_VARIABLES = 20_000


@register("ilp")
def ilp(problem: OrderProblem, options: OrderingOptions) -> Answer:
    """Minimise by integer programming; the bound is proved where the solver finishes.

    Raises
    ------
    MissingDependencyError
        PuLP is not installed, or it finds neither HiGHS nor CBC.
    ScheduleError
        The graph is too large.
    """
    require_pulp("ilp")
    limit = DEFAULT_LIMIT if options.time_limit is None else options.time_limit
    deadline = time.monotonic() + limit
    start = find("greedy")(problem, options)
    program = OrderProgram(problem, start)
    if limit == 0 or program.least == program.most:
        return Answer(start.order, start.lower_bound, "greedy")
    return program.solve(max(deadline - time.monotonic(), 0.01)) or Answer(
        start.order, start.lower_bound, "greedy"
    )


class OrderProgram:
    """The variables and rows for one problem; bytes are in units of the sizes' greatest common divisor."""

    def __init__(self, problem: OrderProblem, start: Answer) -> None:
        self._problem = problem
        self._n = n = len(problem)
        self._before = problem.before.rows()
        self._unit = max(1, int(np.gcd.reduce(np.concatenate([problem.size, problem.workspace]))))
        self.most = peak_of(problem, start.order) // self._unit
        self.least = start.lower_bound // self._unit
        self._first, self._last = self._spans()
        variables = int((self._last - self._first + 1).sum()) + len(problem.size) * n
        if variables > MOST_VARIABLES:
            raise ScheduleError(
                f"the solver ilp would need {variables} variables for {n} operators; expected at most "
                f"{MOST_VARIABLES} (exact and auto have no such limit)"
            )
        self._start = start

    def solve(self, seconds: float) -> Answer | None:
        """Return the order found, or None."""
        import pulp

        program = pulp.LpProblem("order", pulp.LpMinimize)
        peak = pulp.LpVariable("u", self.least, self.most)
        peak.setInitialValue(self.most)
        program += peak
        x = self.runs(program)
        load: list[list[tuple[Any, int]]] = [[] for _ in range(self._n)]
        units = (self._problem.size // self._unit).tolist()
        for size, steps in zip(units, self.preserved(program, x), strict=True):
            for t, p in steps.items():
                load[t].append((p, size))
        for t in range(self._n):
            for v in range(self._n):
                if (v, t) in x and self._problem.workspace[v]:
                    load[t].append((x[v, t], int(self._problem.workspace[v]) // self._unit))
            program += pulp.LpAffineExpression(load[t]) <= peak
        if not solve_program(program, seconds, 1):
            return None
        order = order_of(x, self._n)
        reached = peak_of(self._problem, order)
        finished = (
            program.sol_status == pulp.LpSolutionOptimal and round(peak.varValue) * self._unit == reached
        )
        return Answer(order, reached if finished else self._start.lower_bound, "ilp")

    def runs(self, program: Any) -> dict[tuple[int, int], Any]:
        """X, with the rows that make an order of it."""
        import pulp

        place = places(self._start.order)
        x: dict[tuple[int, int], Any] = {}
        for v in range(self._n):
            for t in range(int(self._first[v]), int(self._last[v]) + 1):
                x[v, t] = pulp.LpVariable(f"x{v}_{t}", cat="Binary")
                x[v, t].setInitialValue(int(place[v] == t))
        for v in range(self._n):
            program += pulp.lpSum(x[v, t] for t in range(self._n) if (v, t) in x) == 1
            program += pulp.lpSum(x[w, v] for w in range(self._n) if (w, v) in x) == 1  # at step v
        for v in range(self._n):
            for w in self._before[v]:
                for t in range(int(self._first[v]), int(self._last[w]) + 1):
                    program += done(x, v, t) <= done(x, w, t - 1)
        return x

    def preserved(self, program: Any, x: dict[tuple[int, int], Any]) -> list[dict[int, Any]]:
        """P, with its rows; by storage and step."""
        import pulp

        preserved: list[dict[int, Any]] = []
        place = places(self._start.order)
        rows = zip(
            self._problem.kept.tolist(), self._problem.writers.rows(), self._problem.users.rows(), strict=True
        )
        for s, (kept, writers, users) in enumerate(rows):
            end = self._n - 1 if kept else max(int(self._last[r]) for r in users)
            steps = range(min(int(self._first[w]) for w in writers), end + 1)
            preserved.append({t: pulp.LpVariable(f"p{s}_{t}", 0, 1) for t in steps})
            for t, p in preserved[-1].items():
                alive = place[writers].min() <= t and (kept or t <= place[users].max())
                p.setInitialValue(int(alive))
                for w in writers:
                    if kept:
                        program += p >= done(x, w, t)
                    for r in () if kept else users:
                        program += p >= done(x, w, t) - done(x, r, t - 1)
        return preserved

    def _spans(self) -> tuple[IntArray, IntArray]:
        """Return the earliest and the latest step of each operator."""
        n = self._n
        ahead = np.zeros((n, n), dtype=bool)
        for v, before in enumerate(self._before):
            for w in before:
                ahead[v] |= ahead[w]
                ahead[v, w] = True
        return ahead.sum(axis=1).astype(np.int64), (n - 1 - ahead.sum(axis=0)).astype(np.int64)


def done(x: dict[tuple[int, int], Any], v: int, t: int) -> Any:
    """Y: whether the operator has begun by step t."""
    import pulp

    return pulp.lpSum(x[v, step] for step in range(t + 1) if (v, step) in x)


def order_of(x: dict[tuple[int, int], Any], n: int) -> IntArray:
    """Return the order of the n operators in a solution."""
    step = [max(t for t in range(n) if (v, t) in x and x[v, t].varValue > 0.5) for v in range(n)]
    return np.argsort(np.array(step, dtype=np.int64), kind="stable").astype(np.int64)


def peak_of(problem: OrderProblem, order: IntArray) -> int:
    """Bytes of the fullest moment of an order."""
    n, place = len(problem), places(order)
    change = np.zeros(n + 1, dtype=np.int64)
    for size, kept, writers, users in zip(
        problem.size.tolist(),
        problem.kept.tolist(),
        problem.writers.rows(),
        problem.users.rows(),
        strict=True,
    ):
        change[place[writers].min()] += size
        change[n if kept else place[users].max() + 1] -= size
    return int((np.cumsum(change[:n]) + problem.workspace[order]).max(initial=0))


def places(order: IntArray) -> IntArray:
    """Return for each operator its place in the order."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place
