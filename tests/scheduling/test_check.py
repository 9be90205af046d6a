"""The checker: agrees with the simulator on the peak, and names what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stowplan.errors import GraphError, ScheduleError
from stowplan.scheduling import Rates, Schedule, StepGraph, Way, simulate
from stowplan.scheduling.check import check

from .graphs import random_graph, random_schedule

SEEDS = st.integers(0, 2**40)


@settings(settings.get_profile("cheap"))
@given(SEEDS, SEEDS, st.integers(1, 20), st.sampled_from([0.5, 3.0, 20.0, 1e9]))
@example(5, 5, 14, 20.0)
def test_the_peak_is_that_of_the_simulator(seed: int, other: int, operators: int, swap: float) -> None:
    graph = random_graph(seed, operators)
    schedule, rates = random_schedule(graph, other), Rates(swap=swap)
    try:
        peak = check(graph, schedule, rates)
    except ScheduleError as error:
        peak, message = None, str(error)
    if peak is None:
        # The one rule that only the checker knows: it depends on where an operator runs again.
        assert "has been written since it ran" in message
        assume(False)
    assert peak == simulate(graph, schedule, rates).peak


def chain(**columns: Any) -> StepGraph:
    """0 (resident) > 1 > 2 > 3, then an operator of the backward phase reads 1 and 2."""
    columns = {"phase": [0, 0, 0, 1], "resident": [1, 0, 0, 0, 0], **columns}
    return StepGraph([[0], [1], [2], [1, 2, 3]], [[1], [2], [3], [4]], [1, 2, 3, 4, 5], **columns)


@pytest.mark.parametrize(
    ("order", "way", "message"),
    [
        ([0, 1, 2, 2], [0, 0, 0, 0, 0], r"operator 2\) runs 2 times|operator 3\) runs 0 times"),
        ([0, 1, 2], [0, 0, 0, 0, 0], r"operator 3\) runs 0 times"),
        ([0, 1, 2, 4], [0, 0, 0, 0, 0], "operator 4; there are 4"),
        ([1, 0, 2, 3], [0, 0, 0, 0, 0], r"operator 1\) runs before .*operator 0\)"),
        ([0, 1, 2, 3], [0, 0, 0, 0], "4 ways; expected one for each of 5"),
        ([0, 1, 2, 3], [0, 0, 5, 0, 0], r"value 2\) has the way 5"),
        ([0, 1, 2, 3], [1, 0, 0, 0, 0], r"value 0\) is resident"),
    ],
)
def test_names_the_rule_that_is_broken(order: list[int], way: list[int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        check(chain(), Schedule(np.array(order), np.array(way)))


SUM = StepGraph([[], [], [0]], [[0], [0], []], [4], phase=[0, 0, 1])
OVERWRITTEN = StepGraph([[0], [0], [1]], [[1], [0], []], [4, 4], phase=[0, 1, 1], resident=[1, 0])


@pytest.mark.parametrize(
    ("graph", "value", "message"),
    [
        (chain(repeatable=[1, 0, 1, 0]), 2, r"operator 1\) runs again for .*3\); it is not repeatable"),
        (chain(kept=[0, 0, 1, 0, 0]), 2, "among the results"),
        (chain(storage=[0, 1, 1, 3, 4]), 2, "shares a storage and not its way"),
        (SUM, 0, "not one writer"),
        (OVERWRITTEN, 1, r"operator 0\) runs again .*value 0\), which it reads, has been written since"),
    ],
)
def test_names_why_a_value_may_not_be_dropped(graph: StepGraph, value: int, message: str) -> None:
    ways = np.zeros(graph.values, dtype=np.int64)
    ways[value] = Way.DROPPED
    with pytest.raises(ScheduleError, match=message):
        check(graph, Schedule(np.arange(len(graph)), ways))


def test_an_operator_comes_after_those_named() -> None:
    graph = StepGraph([[], []], [[0], [1]], [1, 1], after=[[], [0]])
    with pytest.raises(ScheduleError, match=r"operator 1\) runs before"):
        check(graph, Schedule(np.array([1, 0]), np.zeros(2, dtype=np.int64)))


def test_an_operator_comes_after_what_it_reads_and_those_named_all_before_it() -> None:
    parts = [[], [], [0]], [[0], [1], [2]], [1, 1, 1]
    assert StepGraph(*parts).dependencies().rows() == [[], [], [0]]
    assert StepGraph(*parts, after=[[], [], [1]]).dependencies().rows() == [[], [], [0, 1]]
    with pytest.raises(GraphError, match="after"):
        StepGraph(*parts, after=[[2], [], []])
    for held in (-2, 3):
        with pytest.raises(GraphError, match="an operator, 0 to 2 or -1"):
            StepGraph(*parts, held=[-1, held, -1])
