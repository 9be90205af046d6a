"""NNTrainer's planners V1 and V3: by hand, as plain references, and what they are compared with."""

from __future__ import annotations

import pytest
from hypothesis import given

from stowplan.errors import UnsupportedConstraintError
from stowplan.packing import Problem, check, lower_bound, pack

from ...packing.problems import inclusive, problems

PLANNERS = ("nntrainer_v1", "nntrainer_v3")


@pytest.mark.parametrize("planner", PLANNERS)
@given(problem=problems())
def test_valid_or_refused(planner: str, problem: Problem) -> None:
    if (problem.fixed >= 0).any():
        with pytest.raises(UnsupportedConstraintError, match=f"{planner} cannot honour fixed offsets"):
            pack(problem, planner)
    else:
        check(problem, pack(problem, planner).offsets)


def test_only_an_equal_size_is_reused_by_v1() -> None:
    smaller = Problem([4, 4, 3], [0, 0, 2], [2, 4, 4])
    assert pack(smaller, "nntrainer_v1").offsets.tolist() == [0, 4, 8]
    assert pack(smaller, "nntrainer_v3").offsets.tolist() == [0, 4, 0]
    empty = Problem([4, 0, 3], [0, 0, 2], [2, 4, 4])
    assert pack(empty, "nntrainer_v1").offsets.tolist() == [0, 0, 0]
    equal = Problem([4, 4, 4], [0, 0, 2], [2, 4, 4])
    assert pack(equal, "nntrainer_v1").offsets.tolist() == [0, 4, 0]


def test_nothing_hides_behind_a_block_without_bytes() -> None:
    # b ends; c, of 0 bytes, and d take its place: V3 as it is released forgets d where it looks at c after it.
    problem = Problem([4, 4, 0, 4, 4], [0, 0, 1, 1, 2], [9, 1, 9, 9, 9])
    check(problem, pack(problem, "nntrainer_v3").offsets)


@pytest.mark.parametrize("planner", PLANNERS)
def test_the_minimum_memory_of_its_tests(planner: str) -> None:
    rows = [(1, 4, 5), (2, 4, 5), (3, 2, 5), (4, 4, 8), (5, 1, 10)]
    for count, least in enumerate((1, 3, 6, 10, 15), start=1):
        problem = inclusive(*rows[:count])
        assert lower_bound(problem) == least
        assert pack(problem, planner).peak == least
