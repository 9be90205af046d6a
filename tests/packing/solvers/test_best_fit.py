import pytest
from hypothesis import given, settings

from stowplan.packing import Problem, check, pack

from ..problems import problems, random_problem
from ..reference.best_fit import best_fit as reference

pytestmark = pytest.mark.no_cover


@settings(settings.get_profile("cheap"))
@given(problems())
def test_equals_the_reference_with_gaps_alignment_and_fixed(problem):
    placement = pack(problem, "best_fit")
    assert placement.offsets.tolist() == reference(problem)
    check(problem, placement.offsets)


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_reference_on_larger_problems(seed):
    problem = random_problem(seed)
    placement = pack(problem, "best_fit")
    assert placement.offsets.tolist() == reference(problem)
    check(problem, placement.offsets)


def test_time_may_be_sparse_and_negative():
    far = 2**61
    problem = Problem(size=[5, 7], start=[-far, 0], end=[1, far])
    placement = pack(problem, "best_fit")
    assert sorted(placement.offsets.tolist()) == [0, 5]
