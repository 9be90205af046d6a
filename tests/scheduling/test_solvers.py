"""schedule, least, curve: what they promise, whatever the graph; and the compiled descent ends where it did."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import BudgetError, ScheduleError, UnknownSolverError
from stowplan.scheduling import (
    Rates,
    Schedule,
    StepGraph,
    Way,
    as_recorded,
    bound_schedules,
    check,
    choices,
    lean,
    require_valid,
    simulate,
)
from stowplan.scheduling._simulator import descend
from stowplan.scheduling.solve import Solution, curve, least, schedule

from .graphs import random_graph, random_schedule
from .nets import branching_net, chain_net, vgg16

seeds = st.integers(0, 10**6)


def allowed(graph: StepGraph, swap: bool = True) -> np.ndarray:
    ways = np.zeros(graph.values, dtype=np.uint8)
    for s, its in choices(graph).items():
        ways[s] = sum(1 << int(w) for w in its if swap or w < Way.SWAPPED)
    return ways


def require_sound(graph: StepGraph, found: Solution, rates: Rates | None = None) -> None:
    require_valid(graph, found.schedule)
    assert check(graph, found.schedule, rates) == found.peak
    assert simulate(graph, found.schedule, rates).peak == found.peak
    assert found.lower_bound is not None
    assert bound_schedules(graph) == found.lower_bound <= found.peak


def test_descents_are_those_recorded() -> None:
    rates, ended = Rates(swap=20.0, pack=50.0), []
    for seed in range(300):
        graph = random_graph(seed, phases=True)
        start = random_schedule(graph, seed + 1)
        budget = int((0.3 + seed % 9 / 10) * simulate(graph, start).peak)
        swap = seed % 2 == 0
        if not swap:
            start = Schedule(start.order, np.where(start.way >= Way.SWAPPED, Way.KEPT, start.way))
        ended.append(descend(graph, start.order, start.way, allowed(graph, swap), budget, rates)[1].tolist())
    assert zlib.crc32(repr(ended).encode()) == 1363869900


@given(seeds, st.floats(0, 1), st.booleans())
@settings(settings.get_profile("dear"))
def test_solutions_keep_the_budget_or_say_the_least(seed: int, share: float, swap: bool) -> None:
    graph = random_graph(seed)
    free = simulate(graph, lean(graph)).peak
    budget, rates = int(share * free), Rates(swap=20.0, pack=50.0)
    try:
        found = schedule(graph, budget, swap=swap, rates=rates)
        reached = budget
    except BudgetError as error:
        reached = error.least
        found = schedule(graph, reached, swap=swap, rates=rates)
    assert budget <= reached <= max(budget, free)
    assert found.peak <= reached
    require_sound(graph, found, rates)
    assert found.peak <= free
    if not swap:
        assert not (found.schedule.way >= Way.SWAPPED).any()


@given(seeds)
@settings(settings.get_profile("dear"))
def test_a_search_never_loses_what_the_descent_found(seed: int) -> None:
    graph = branching_net(14, seed)
    start = as_recorded(graph)
    budget = int(0.7 * simulate(graph, start).peak)

    def cost(effort: int) -> tuple[int, float]:
        order, way, *_ = descend(
            graph, start.order, start.way, allowed(graph), budget, Rates(), effort=effort
        )
        found = simulate(graph, Schedule(order, way))
        above = int(np.maximum(found.live - budget, 0).sum())
        return above, found.extra_seconds + 1e-9 * bool(effort == 0)

    assert cost(3000) <= cost(0)
    assert cost(3000) == cost(3000)


def test_no_budget_is_lean() -> None:
    graph = branching_net(12, 3)
    found = schedule(graph)
    assert found.solver == "lean"
    assert found.optimal
    assert found.extra_seconds == 0
    assert found.schedule.order.tolist() == lean(graph).order.tolist()
    assert schedule(graph, found.peak).solver == "lean"


def test_a_budget_out_of_reach_says_the_least() -> None:
    graph = branching_net(12, 4)
    with pytest.raises(BudgetError, match="the least is") as caught:
        schedule(graph, 1)
    assert caught.value.least == least(graph).peak == check(graph, caught.value.solution.schedule)
    assert str(caught.value.least) in str(caught.value)


@given(seeds)
@settings(settings.get_profile("dearest"))
def test_curve_is_monotone(seed: int) -> None:
    graph = branching_net(16, seed)
    found = curve(graph, 6)
    peaks, seconds = [s.peak for s in found], [s.extra_seconds for s in found]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == len(seconds)
    assert seconds[0] == 0
    for one in found:
        require_sound(graph, one)
    below = [peaks[0], peaks[-1], 0]
    for one in curve(graph, below):
        assert any(one.peak <= budget for budget in below)


def test_progress_tells_of_improvements_and_ends_the_search() -> None:
    graph = branching_net(60, 5)
    budget = int(0.6 * simulate(graph, lean(graph)).peak)
    told = []
    schedule(graph, budget, progress=told.append)
    assert told
    assert {"lean", "greedy"} <= {p.solver for p in told}
    stopped = []

    def stop(progress) -> bool:
        stopped.append(progress)
        return progress.solver != "greedy"

    found = schedule(graph, budget, progress=stop)
    assert found.peak <= budget
    assert len(stopped) <= len(told)


def test_swapping_is_chosen_where_it_is_cheaper() -> None:
    graph = chain_net(10, 2)
    budget = int(0.7 * simulate(graph, lean(graph)).peak)
    fast = schedule(graph, budget, "greedy", swap=True, rates=Rates(swap=1e9))
    slow = schedule(graph, budget, "greedy", swap=True, rates=Rates(swap=1e-3))
    assert (fast.schedule.way == Way.SWAPPED).any()
    assert fast.extra_seconds < slow.extra_seconds
    assert not (slow.schedule.way >= Way.SWAPPED).any()


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"budget": -1}, ScheduleError, "budget is -1"),
        ({"time_limit": -1.0}, ScheduleError, "time_limit is -1"),
        ({"threads": 0}, ScheduleError, "threads is 0"),
        ({"solver": "magic"}, UnknownSolverError, "expected one of: auto, cheap, greedy, lean"),
        ({"solver": "mip"}, UnknownSolverError, "the solver 'mip' was removed; expected auto"),
    ],
)
def test_bad_arguments(arguments, error, said) -> None:
    with pytest.raises(error, match=said):
        schedule(chain_net(3, 0), **arguments)


def test_empty_graph() -> None:
    graph = StepGraph([], [], [])
    assert schedule(graph, 0).peak == 0
    assert least(graph).peak == 0
    assert schedule(graph, 0, "greedy").peak == 0


@pytest.mark.parametrize("mib_a_second", [1000, 300, 10])
def test_the_least_peak_does_not_depend_on_the_disk(mib_a_second: int) -> None:
    """Eight layers of 100 MiB, each read again on the way back: on demand two of them are there at a time."""
    mib, layers = 2**20, 8
    reads = [[i - 1] if i else [] for i in range(layers)] + [[i] for i in reversed(range(layers))]
    writes = [[i] for i in range(layers)] + [[] for _ in range(layers)]
    graph = StepGraph(
        reads, writes, [100 * mib] * layers, phase=[0] * layers + [1] * layers, seconds=[0.2] * 2 * layers
    )
    rates = Rates(swap=mib_a_second * mib)
    assert least(graph, swap=True, rates=rates).peak == 200 * mib
    found = schedule(graph, 300 * mib, swap=True, rates=rates)
    assert check(graph, found.schedule, rates) == found.peak <= 300 * mib


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_seconds_do_not_decide_what_is_refused(seed):
    graph = vgg16()
    equal = least(graph.with_seconds(np.ones(len(graph)))).peak
    measured = graph.seconds * np.random.default_rng(seed).lognormal(0, 0.3, len(graph))
    found = least(graph.with_seconds(measured)).peak
    assert found <= equal
    assert schedule(graph.with_seconds(measured), equal).peak <= equal
