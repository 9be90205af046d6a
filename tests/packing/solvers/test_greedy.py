import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.packing import Problem, check, orders, pack
from stowplan.packing.solvers.heuristics import pairs_alive_together

from ..problems import data, inclusive, problems, random_problem
from ..reference import greedy as reference

pytestmark = pytest.mark.no_cover

SOLVERS = pytest.mark.parametrize("solver", ["greedy_by_size", "greedy_by_breadth", "greedy_in_order"])


@SOLVERS
@settings(settings.get_profile("cheap"))
@given(problem=problems())
def test_equals_the_double_loop(solver, problem):
    placement = pack(problem, solver)
    assert placement.offsets.tolist() == getattr(reference, solver)(problem)
    check(problem, placement.offsets)


@SOLVERS
@pytest.mark.parametrize("seed", range(8))
def test_equals_the_reference_on_larger_problems(solver, seed):
    problem = random_problem(seed)
    placement = pack(problem, solver)
    assert placement.offsets.tolist() == getattr(reference, solver)(problem)
    check(problem, placement.offsets)


def test_tflite_chain():
    placement = pack(inclusive((16, 0, 1), (8, 1, 2), (64, 2, 3), (32, 3, 4), (8, 4, 5)), "greedy_by_size")
    assert placement.offsets.tolist() == [0, 64, 0, 64, 0]
    assert placement.peak == 96


def test_tflite_micro_medium():
    placement = pack(inclusive((10, 0, 1), (20, 1, 2), (30, 2, 3), (40, 3, 4), (50, 0, 1)), "greedy_by_size")
    assert placement.offsets.tolist() == [50, 70, 40, 0, 0]
    assert (placement.peak, placement.lower_bound, placement.optimal) == (90, 80, False)


def test_xla_heap_simulator():
    # Allocate a 10, b 20, c 40; free a; allocate d 30, e 50; free the rest.
    problem = Problem(size=[10, 20, 40, 30, 50], start=[0, 1, 2, 4, 5], end=[3, 6, 6, 6, 6])
    placement = pack(problem, "greedy_by_size")
    assert placement.offsets.tolist() == [90, 120, 50, 90, 0]
    assert placement.peak == 140


@pytest.mark.parametrize(
    ("solver", "name", "printed"),
    [
        ("greedy_by_size", "mobilenet_v1", "4.594"),
        ("greedy_by_size", "mobilenet_v2", "5.742"),
        ("greedy_by_size", "deeplab_v3", "4.653"),
        ("greedy_by_breadth", "mobilenet_v1", "4.594"),
        ("greedy_by_breadth", "mobilenet_v2", "5.742"),
        ("greedy_by_breadth", "deeplab_v3", "4.653"),
        ("greedy_in_order", "mobilenet_v1", "6.125"),
        ("greedy_in_order", "mobilenet_v2", "6.508"),
        ("greedy_in_order", "deeplab_v3", "4.985"),
    ],
)
def test_pisarchyk_and_lee_table_2(solver, name, printed):
    assert f"{pack(data(name), solver).peak / 2**20:.3f}" == printed


def test_the_widest_moment_goes_first_and_the_later_of_equals():
    # Ticks 0 and 4 are equally wide: the block at 4 goes to the bottom with the one that is alive at both.
    problem = Problem(size=[4, 2, 4], start=[0, 0, 4], end=[4, 6, 6])
    assert orders.by_breadth(problem).tolist() == [2, 1, 0]


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.data())
def test_range_minima(values, draws):
    n = len(values)
    ends = st.tuples(st.integers(0, n - 1), st.integers(1, n)).filter(lambda r: r[0] < r[1])
    ranges = draws.draw(st.lists(ends, max_size=10))
    left, right = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    expected = [min(values[a:b]) for a, b in ranges]
    assert orders.range_minima(np.array(values), left, right).tolist() == expected


@settings(settings.get_profile("usual"))
@given(problems())
def test_pairs_alive_together_are_counted(problem):
    pieces = problem.pieces()
    spans = list(zip(pieces.start, pieces.end, strict=True))
    expected = sum(a < d and c < b for (a, b), (c, d) in itertools.combinations(spans, 2))
    assert pairs_alive_together(problem) == expected


def test_the_smallest_hole_wins_and_the_lowest_of_equals():
    # Fixed walls leave holes of 6, 4 and 4 bytes below the unbounded space.
    problem = Problem(
        size=[2, 2, 2, 3],
        start=[0, 0, 0, 0],
        end=[1, 1, 1, 1],
        fixed=[6, 12, 18, -1],
    )
    assert pack(problem, "greedy_by_size").offsets[3] == 8


def test_a_window_lets_others_under_and_over():
    # During the gap only the bytes 4 and 5 of the first block are occupied.
    problem = Problem(size=[10, 4, 4], start=[0, 2, 2], end=[8, 5, 5], gaps=[[0, 2, 5, 4, 6]])
    placement = pack(problem, "greedy_by_size")
    check(problem, placement.offsets)
    assert placement.offsets.tolist() == [0, 0, 6]
    assert placement.peak == 10
