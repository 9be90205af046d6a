"""Solvers against brute force over all ways of small graphs."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan.errors import BudgetError
from stowplan.scheduling import StepGraph, bound_schedules, lean, simulate
from stowplan.scheduling.solve import least, schedule

from .nets import branching_net, brute_force, chain_net


def budget_of(graph: StepGraph, share: float) -> int:
    return int(share * simulate(graph, lean(graph)).peak)


@pytest.mark.parametrize("make", [chain_net, branching_net])
def test_greedy_is_near_brute_force(make) -> None:
    """Over 4 graphs and three budgets: never faster than the optimum, mostly equal to it, on average within 2 %."""
    over, equal, count = [], 0, 0
    for seed in range(4):
        graph = make(6, seed)
        for share in (0.9, 0.75, 0.6):
            budget = budget_of(graph, share)
            fastest, lowest = brute_force(graph, budget)
            assert bound_schedules(graph) <= lowest
            if fastest is None:
                with pytest.raises(BudgetError) as caught:
                    schedule(graph, budget, "greedy", reorder=False)
                assert caught.value.least >= lowest
                continue
            found = schedule(graph, budget, "greedy", reorder=False)
            assert found.extra_seconds >= fastest - 1e-9
            over.append((found.extra_seconds + 1) / (fastest + 1) - 1)
            equal += found.extra_seconds <= fastest + 1e-9
            count += 1
    assert equal >= 0.9 * count
    assert np.mean(over) <= 0.02


def test_least_is_near_the_least_of_all() -> None:
    above = []
    for seed in range(10):
        graph = branching_net(6, seed)
        _, lowest = brute_force(graph, 0)
        above.append(least(graph, reorder=False).peak / lowest - 1)
    assert min(above) >= 0
    assert np.mean(above) <= 0.02
