"""What is alive at the peak: together they are the peak, whatever the step and its schedule."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import BudgetError
from stowplan.scheduling import Phase, Rates, StepGraph, simulate, solve
from stowplan.scheduling.peak_explanation import alive_at_peak

from .graphs import random_graph, random_schedule

SEEDS = st.integers(0, 2**40)


@settings(settings.get_profile("cheap"))
@given(SEEDS, SEEDS, st.integers(1, 25), st.sampled_from([0.5, 3.0, 20.0, 1e9]))
def test_what_is_alive_adds_up_to_the_peak(seed: int, other: int, operators: int, swap: float) -> None:
    graph = random_graph(seed, operators)
    schedule, rates = random_schedule(graph, other), Rates(swap=swap)
    outcome, alive = simulate(graph, schedule, rates), alive_at_peak(graph, schedule, rates)
    assert sum(size for _, size in alive.storages) + alive.workspace == outcome.peak
    assert alive.again == (outcome.rerun >= 0)
    if outcome.place >= 0:
        assert alive.operator == (outcome.rerun if alive.again else schedule.order[outcome.place])
    for value, size in alive.storages:
        assert graph.storage[value] == value
        assert not graph.resident[value]
        assert size in (graph.size[value], graph.packed[value])
    sizes = [size for _, size in alive.storages]
    assert sizes == sorted(sizes, reverse=True)


def test_the_floor_of_an_update_does_not_depend_on_the_batch() -> None:
    graph = StepGraph(
        reads=[[0], [1]],
        writes=[[1], [0]],
        size=[10, 10],
        workspace=[0, 30],
        resident=[True, False],
        phase=[Phase.BACKWARD, Phase.UPDATE],
    )
    with pytest.raises(BudgetError, match="smaller parameters, or another optimizer") as caught:
        solve.schedule(graph, 1)
    assert "a smaller batch" not in str(caught.value)


def test_the_floor_names_the_operator_and_what_is_beside_it() -> None:
    graph = StepGraph(
        reads=[[], [0], [1, 0]],
        writes=[[0], [1], [2]],
        size=[1 << 20, 2 << 20, 4 << 20],
        workspace=[0, 8 << 20, 0],
        kept=[False, False, True],
        label=["batch", "conv", "loss"],
        name=["x", "y", "z"],
    )
    with pytest.raises(BudgetError) as caught:
        solve.schedule(graph, 1)
    assert caught.value.least == 11 << 20
    assert caught.value.floor in str(caught.value)
    for said in (
        "reached where conv runs, with 8.0 MiB of workspace and 3.0 MiB that it reads and writes",
        "smaller batch",
    ):
        assert said in caught.value.floor
