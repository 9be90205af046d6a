"""Order and addresses together: against all orders, OLLA's pathological case, orders that cannot be packed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import ScheduleError
from stowplan.packing import check, lower_bound, pack
from stowplan.papers.olla.joint import JointSolution, blocks_of, order_and_place, place
from stowplan.scheduling import Schedule, StepGraph, Way, require_valid, simulate

from ...scheduling.graphs import random_graph, random_order

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pulp")

needs_pulp = pytest.mark.skipif(
    find_spec("pulp") is None, reason="PuLP is not installed; expected: pip install 'stowplan[mip]'"
)

# Bytes, first and last operator: the fullest moments need 7 bytes, and no placement has fewer than 8.
TIGHT = [(4, 0, 0), (3, 1, 1), (2, 0, 2), (1, 2, 2), (1, 0, 3), (2, 2, 3), (1, 1, 4), (3, 3, 4), (3, 4, 4)]


def lifetimes(rows: list[tuple[int, int, int]], after: list[list[int]] | None = None) -> StepGraph:
    """A value for each row; where nothing else is said the operators run in the order of their numbers."""
    n = 1 + max(last for *_, last in rows)
    reads = [[v for v, (_, first, last) in enumerate(rows) if last == i != first] for i in range(n)]
    writes = [[v for v, (_, first, _) in enumerate(rows) if first == i] for i in range(n)]
    chain = [[i - 1] if i else [] for i in range(n)]
    return StepGraph(reads, writes, [size for size, *_ in rows], after=chain if after is None else after)


def kept(graph: StepGraph, numbers: np.ndarray) -> Schedule:
    return Schedule(numbers, np.full(graph.values, int(Way.KEPT)))


def orders(graph: StepGraph) -> Iterator[list[int]]:
    before = graph.dependencies().rows()

    def rest(done: list[int]) -> Iterator[list[int]]:
        if len(done) == len(graph):
            yield done
        for i in range(len(graph)):
            if i not in done and set(before[i]) <= set(done):
                yield from rest([*done, i])

    yield from rest([])


def require_applicable(graph: StepGraph, found: JointSolution) -> None:
    """The order is one of the graph's; what is alive at once in it is apart, and has the simulator's peak."""
    require_valid(graph, kept(graph, found.order))
    assert simulate(graph, kept(graph, found.order)).peak == found.peak <= found.arena
    assert lower_bound(found.blocks.problem) == found.peak
    check(found.blocks.problem, found.placement.offsets)
    for places, offsets in (
        (found.blocks.storage, found.value_offsets),
        (found.blocks.operator, found.workspace_offsets),
    ):
        mine = places >= 0
        assert offsets[places[mine]].tolist() == found.placement.offsets[mine].tolist()


@given(st.integers(0, 2**40), st.integers(1, 12))
@settings(settings.get_profile("dear"))
def test_blocks_have_the_peak_of_the_order(seed: int, operators: int) -> None:
    graph = random_graph(seed, operators)
    numbers = random_order(graph, random.Random(seed))
    blocks = blocks_of(graph, numbers)
    assert lower_bound(blocks.problem) == simulate(graph, kept(graph, numbers)).peak
    check(blocks.problem, place(graph, numbers).offsets)
    assert len(blocks.problem) == len(blocks.storage) == len(blocks.operator)
    assert ((blocks.storage >= 0) != (blocks.operator >= 0)).all()


@given(st.integers(0, 2**40), st.integers(1, 14))
@settings(settings.get_profile("dear"))
def test_what_is_found_can_be_applied(seed: int, operators: int) -> None:
    graph = random_graph(seed, operators)
    found = order_and_place(graph)
    require_applicable(graph, found)
    assert found.lower_bound <= found.arena
    assert found.optimal == (found.lower_bound == found.arena)


def test_against_all_orders() -> None:
    for seed in range(40):
        graph = random_graph(seed, 5)
        least = min(
            pack(blocks_of(graph, np.array(numbers)).problem, "exact").peak for numbers in orders(graph)
        )
        found = order_and_place(graph, time_limit=None)
        assert (found.arena, found.optimal) == (least, True), seed


@needs_pulp
def test_an_arena_above_the_peak_is_proved() -> None:
    graph = lifetimes(TIGHT)
    found = order_and_place(graph, time_limit=60)
    require_applicable(graph, found)
    assert (found.peak, found.arena, found.lower_bound, found.optimal) == (7, 8, 8, True)


def test_the_order_is_changed_where_it_cannot_be_packed() -> None:
    graph = lifetimes(TIGHT, [[], [], [], [0], [1]])
    recorded = pack(blocks_of(graph, np.arange(5)).problem, "exact")
    assert (recorded.lower_bound, recorded.peak) == (8, 8)
    assert simulate(graph, kept(graph, np.arange(5))).peak == 7
    found = order_and_place(graph)
    require_applicable(graph, found)
    assert (found.peak, found.arena, found.optimal, found.found_by) == (7, 7, True, "moves")
    assert found.order.tolist() != list(range(5))


def test_everything_is_a_multiple_of_the_alignment() -> None:
    graph = random_graph(7, 12)
    found = order_and_place(graph, alignment=64)
    assert found.arena % 64 == found.peak % 64 == 0
    assert (found.placement.offsets % 64 == 0).all()
    assert (found.blocks.problem.size % 64 == 0).all()


def test_what_is_wrong_is_said() -> None:
    graph = lifetimes(TIGHT)
    with pytest.raises(ScheduleError, match="alignment is 0; expected 1"):
        order_and_place(graph, alignment=0)
    with pytest.raises(ScheduleError):
        place(graph, np.array([1, 0, 2, 3, 4]))
    with pytest.raises(ScheduleError, match="time_limit is -1"):
        order_and_place(graph, time_limit=-1)
