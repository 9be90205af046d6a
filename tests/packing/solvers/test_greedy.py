import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.packing import Problem, check, orders, pack
from stowplan.packing.solvers.heuristics import pairs_alive_together

from ..problems import data, problems, random_problem
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
