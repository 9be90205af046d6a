"""What every solver for the order of operators must do. To test one, name it in a subclass that pytest collects."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stowplan.scheduling import Schedule, Way, as_recorded, require_valid, simulate
from stowplan.scheduling.ordering import OrderingOptions, OrderProblem, order, solvers

from ..scheduling.graphs import random_graph

SEEDS = st.integers(0, 10**6)
inherited = settings(suppress_health_check=[HealthCheck.differing_executors])


class OrderSolverContract:
    """Orders of all operators, each after those that it waits for; bounds that no order is below."""

    solver: ClassVar[str]

    @inherited
    @given(SEEDS, st.integers(1, 10))
    def test_every_order_may_run(self, seed: int, operators: int) -> None:
        graph = random_graph(seed, operators)
        answer = solvers[self.solver](OrderProblem.of(graph), OrderingOptions())
        assert answer.order.dtype == np.int64
        require_valid(graph, Schedule(answer.order, np.full(graph.values, int(Way.KEPT))))

    @inherited
    @given(SEEDS, st.integers(1, 10))
    def test_the_solution_says_the_truth(self, seed: int, operators: int) -> None:
        """Never worse than the order recorded, and no bound above what a finished search finds."""
        graph = random_graph(seed, operators)
        found = order(graph, self.solver)
        least = order(graph, "exact", time_limit=None).peak
        assert found.lower_bound <= least <= found.peak <= found.before
        assert found.before == simulate(graph, as_recorded(graph)).peak
        assert found.optimal == (found.lower_bound == found.peak)

    @inherited
    @given(SEEDS)
    def test_equal_graphs_have_equal_orders(self, seed: int) -> None:
        problem = OrderProblem.of(random_graph(seed))
        first, second = (solvers[self.solver](problem, OrderingOptions()) for _ in range(2))
        assert first.order.tolist() == second.order.tolist()
