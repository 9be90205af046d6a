"""Lower bounds: never above a peak that a schedule reaches, and tight where they can be."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.scheduling import Rates, Schedule, StepGraph, simulate
from stowplan.scheduling.bounds import bound_orders, bound_schedules, needs

from .graphs import random_graph, random_order, random_schedule

SEEDS = st.integers(0, 2**40)


@settings(settings.get_profile("cheap"))
@given(SEEDS, st.integers(1, 25), st.sampled_from([0.5, 3.0, 20.0, 1e9]))
def test_no_schedule_is_below(seed: int, operators: int, swap: float) -> None:
    graph = random_graph(seed, operators)
    schedule = random_schedule(graph, seed)
    outcome = simulate(graph, schedule, Rates(swap=swap))
    assert outcome.peak >= bound_schedules(graph)
    assert (outcome.live >= needs(graph, of_schedules=True)[schedule.order]).all()


@settings(settings.get_profile("cheap"))
@given(SEEDS, st.integers(1, 25))
def test_no_order_is_below(seed: int, operators: int) -> None:
    graph = random_graph(seed, operators)
    order = random_order(graph, random.Random(seed))
    outcome = simulate(graph, Schedule(order, np.zeros(graph.values, dtype=np.int64)))
    assert outcome.peak >= bound_orders(graph) >= bound_schedules(graph)
    assert (outcome.live >= needs(graph, of_schedules=False)[order]).all()


def test_two_layers_by_hand() -> None:
    # a 10 > b 20; backward: gb 7 from b, ga 9 from gb and a.
    graph = StepGraph([[], [0], [1], [2, 0]], [[0], [1], [2], [3]], [10, 20, 7, 9], phase=[0, 0, 1, 1])
    assert needs(graph, of_schedules=False).tolist() == [10, 30, 37, 26]
    assert needs(graph, of_schedules=True).tolist() == [10, 30, 27, 26]
    assert (bound_orders(graph), bound_schedules(graph)) == (37, 30)


def test_what_is_held_and_what_results_count() -> None:
    graph = StepGraph(
        [[], [0], [1]], [[0], [1], [2]], [4, 5, 6], phase=[0, 1, 2], held=[2, -1, -1], kept=[0, 1, 0]
    )
    assert needs(graph, of_schedules=True).tolist() == [4, 9, 15]
    assert bound_schedules(StepGraph([], [], [])) == 0
    idle = StepGraph([[], []], [[0], [1]], [4, 5], kept=[1, 1])
    assert bound_orders(idle) == 9  # both are alive at the end, whichever runs first


def test_workspace_counts_and_resident_storages_do_not() -> None:
    graph = StepGraph([[0]], [[1]], [100, 3], resident=[1, 0], workspace=[8])
    assert bound_orders(graph) == bound_schedules(graph) == 11
