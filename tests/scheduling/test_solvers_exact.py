"""Solvers against brute force over all ways of small graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.any_graph import layered
from stowplan.errors import BudgetError
from stowplan.scheduling import Schedule, StepGraph, bound_schedules, lean, simulate
from stowplan.scheduling.registry import NotApplicable, SchedulingOptions, find
from stowplan.scheduling.solve import least, schedule

from .graphs import random_graph
from .nets import branching_net, brute_force, chain_net

seeds = st.integers(0, 10**6)
shares = st.sampled_from([0.9, 0.8, 0.7, 0.6, 0.5])


def budget_of(graph: StepGraph, share: float) -> int:
    return int(share * simulate(graph, lean(graph)).peak)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: chain_net(5, seed),
        lambda seed: branching_net(5, seed),
        # Held values, results, masks that may not run again, outputs by the handful: whatever it does not refuse.
        lambda seed: random_graph(seed, 9, phases=True),
        lambda seed: layered(5, 6, 2, seed),
    ],
    ids=["chain", "branches", "any", "without phases"],
)
@given(seeds, shares)
@settings(settings.get_profile("dear"))
def test_mip_is_exact(make, seed: int, share: float) -> None:
    pytest.importorskip("pulp")
    graph = make(seed)
    budget = budget_of(graph, share)
    try:
        answer = find("mip")(graph, SchedulingOptions(budget))
    except NotApplicable:
        return
    assert not isinstance(answer, Schedule)
    assert answer.schedule.order.tolist() == lean(graph).order.tolist()
    fastest, lowest = brute_force(graph, budget)
    assert bound_schedules(graph) <= lowest
    found = simulate(graph, answer.schedule)
    assert (found.peak <= budget) == (fastest is not None)
    if fastest is not None:
        assert found.extra_seconds == pytest.approx(fastest)


def test_mip_proves_what_it_finds_or_says_that_there_is_nothing() -> None:
    pytest.importorskip("pulp")
    graph = branching_net(5, 3)
    _, lowest = brute_force(graph, 0)
    assert schedule(graph, lowest, "mip").optimal
    with pytest.raises(BudgetError):
        schedule(graph, lowest - 1, "mip")


@pytest.mark.parametrize("make", [chain_net, branching_net])
def test_greedy_is_near_brute_force(make) -> None:
    """Over 8 graphs and three budgets: never faster than the optimum, mostly equal to it, on average within 2 %."""
    over, equal, count = [], 0, 0
    for seed in range(8):
        graph = make(6, seed)
        for share in (0.9, 0.75, 0.6):
            budget = budget_of(graph, share)
            fastest, lowest = brute_force(graph, budget)
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
    for seed in range(20):
        graph = branching_net(6, seed)
        _, lowest = brute_force(graph, 0)
        above.append(least(graph, reorder=False).peak / lowest - 1)
    assert min(above) >= 0
    assert np.mean(above) <= 0.02


def test_mip_says_that_a_graph_is_too_large() -> None:
    pytest.importorskip("pulp")
    with pytest.raises(NotApplicable, match="small graphs"):
        schedule(chain_net(120, 0), 50, "mip")
