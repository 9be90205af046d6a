import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.packing import _solvers, check, orders
from stowplan.packing.meetings import pairs_alive_together

from .problems import problems, random_problem
from .reference.greedy import greedy

pytestmark = pytest.mark.no_cover


@settings(settings.get_profile("usual"))
@given(problems(), st.randoms(use_true_random=False))
def test_equals_the_double_loop(problem, random):
    order = list(range(len(problem)))
    random.shuffle(order)
    offsets = _solvers.greedy(problem, np.array(order, dtype=np.int64))
    assert offsets.tolist() == greedy(problem, order)
    check(problem, offsets)


@pytest.mark.parametrize("order", [orders.by_size, orders.by_area])
@pytest.mark.parametrize("seed", range(8))
def test_equals_the_reference_on_larger_problems(order, seed):
    problem = random_problem(seed)
    offsets = _solvers.greedy(problem, order(problem))
    assert offsets.tolist() == greedy(problem, order(problem).tolist())
    check(problem, offsets)


@settings(settings.get_profile("usual"))
@given(problems())
def test_pairs_alive_together_are_counted(problem):
    pieces = problem.pieces()
    spans = list(zip(pieces.start, pieces.end, strict=True))
    expected = sum(a < d and c < b for (a, b), (c, d) in itertools.combinations(spans, 2))
    assert pairs_alive_together(problem) == expected
