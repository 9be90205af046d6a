"""The compiled simulator: the same as its specification, evaluated anew and after changes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import ScheduleError
from stowplan.scheduling import (
    Phase,
    Rates,
    Relation,
    Schedule,
    StepGraph,
    Way,
    as_recorded,
    choices,
    simulate,
    simulator,
)

from .graphs import random_graph, random_order, random_schedule, random_way
from .reference import simulator as reference

SEEDS = st.integers(0, 2**40)
SIZES = st.integers(1, 30)
RATES = st.builds(Rates, st.sampled_from([0.5, 3.0, 20.0, 1e9]), st.sampled_from([1.0, 64.0]))


def assert_as_specified(graph: StepGraph, schedule: Schedule, rates: Rates | None) -> None:
    found, expected = simulate(graph, schedule, rates), reference.simulate(graph, schedule, rates)
    assert [(p, list(row)) for p, row in found.recomputed] == expected.recomputed
    assert found.live.tolist() == expected.live
    assert (found.peak, found.place, found.rerun) == (expected.peak, expected.place, expected.rerun)
    assert found.extra_seconds == expected.extra_seconds
    assert found.released.tolist() == expected.released


@settings(settings.get_profile("cheap"))
@given(SEEDS, SEEDS, SIZES, RATES)
def test_is_as_specified(seed: int, other: int, operators: int, rates: Rates) -> None:
    graph = random_graph(seed, operators)
    assert_as_specified(graph, random_schedule(graph, other), rates)


@settings(settings.get_profile("cheap"))
@given(SEEDS, SIZES, RATES)
def test_changes_give_the_same_as_evaluating_anew(seed: int, operators: int, rates: Rates) -> None:
    graph, rng = random_graph(seed, operators), random.Random(seed)
    may = [(storage, ways) for storage, ways in choices(graph).items() if len(ways) > 1]
    schedule = random_schedule(graph, seed)
    core = simulator(graph, schedule, rates)
    order, way = schedule.order, schedule.way.copy()
    users = {s: found for s, found in enumerate(graph.users()) if graph.storage[s] == s}
    drops = schedule.drops.rows() if schedule.drops else [[] for _ in range(graph.values)]
    for _ in range(12):
        if rng.random() < 0.1:
            order = random_order(graph, rng)
            core.set_order(order)
        if rng.random() < 0.05:
            way = random_way(graph, rng)
            core.set_ways(way)
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            if may:
                storage, ways = rng.choice(may)
                way[graph.storage == storage] = rng.choice(ways)
                core.set_way(storage, int(way[storage]))
        if not graph.has_phases():
            for storage in rng.sample(sorted(users), min(2, len(users))):
                drops[storage] = [o for o in sorted(users[storage]) if rng.random() < 0.5]
                core.set_drops(storage, drops[storage])
        if rng.random() < 0.2:
            continue  # changes come together
        found = core.evaluate()
        fresh = simulator(graph, Schedule(order, way, Relation(drops)), rates)
        assert found == fresh.evaluate()
        assert core.live().tolist() == fresh.live().tolist()
        assert core.recomputed() == fresh.recomputed()
        assert core.released().tolist() == fresh.released().tolist()
        assert core.intervals().tolist() == fresh.intervals().tolist()
        assert core.evaluate() == found
    assert_as_specified(graph, Schedule(order, way, Relation(drops)).with_ways(way), rates)


# --- small cases, counted by hand ---------------------------------------------------------------------------------


def two_layers(**columns: object) -> StepGraph:
    """image (resident) > a 10 > b 20 > loss 1, and back: b' reads a; each gradient as large as its value."""
    return StepGraph(
        reads=[[0], [1], [2], [3, 2], [4, 1], [5, 0]],
        writes=[[1], [2], [3], [4], [5], [6]],
        size=[100, 10, 20, 1, 20, 10, 5],
        phase=[Phase.FORWARD] * 3 + [Phase.BACKWARD] * 3,
        resident=[True] + [False] * 6,
        seconds=[1.0, 2.0, 0.5, 1.0, 1.0, 1.0],
        **columns,  # type: ignore[arg-type]
    )


def with_way(graph: StepGraph, **ways: Way) -> Schedule:
    way = as_recorded(graph).way.copy()
    for value, chosen in ways.items():
        way[int(value[1:])] = chosen
    return Schedule(np.arange(len(graph)), way)


def test_an_empty_step() -> None:
    outcome = simulate(StepGraph([], [], []), as_recorded(StepGraph([], [], [])))
    assert (outcome.peak, outcome.place, outcome.live.size, outcome.released.size) == (0, -1, 0, 0)


def test_refuses_what_is_no_schedule_of_the_graph() -> None:
    graph = two_layers()
    with pytest.raises(ScheduleError, match=r"value 0.*DROPPED; expected KEPT"):
        simulate(graph, with_way(graph, v0=Way.DROPPED))
    with pytest.raises(ScheduleError, match=r"operator 1.*before.*operator 0"):
        simulate(graph, Schedule(np.array([1, 0, 2, 3, 4, 5]), as_recorded(graph).way))
    core = simulator(graph, as_recorded(graph))
    for order in ([0, 1, 2], [0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 6]):
        with pytest.raises(ValueError, match="not one of all operators"):
            core.set_order(np.array(order))
    with pytest.raises(ValueError, match="value 9"):
        core.set_way(9, Way.KEPT)
    with pytest.raises(ValueError, match="way 7"):
        core.set_way(1, 7)
    with pytest.raises(ValueError, match="expected 7"):
        core.set_ways(np.zeros(3, dtype=np.int64))
