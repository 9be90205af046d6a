import numpy as np
import pytest
from hypothesis import given, settings

from stowplan.errors import ProblemError, UnknownSolverError
from stowplan.packing import Problem, check, lower_bound, pack, solvers
from stowplan.packing.registry import register

from .problems import data, problems, training_step


@settings(deadline=None)
@given(problems())
def test_auto_is_never_worse_than_its_members(problem):
    auto = pack(problem)
    check(problem, auto.offsets)
    members = {name: pack(problem, name) for name in ("best_fit", "greedy_by_size")}
    assert auto.peak == min(p.peak for p in members.values())
    assert auto.offsets.tolist() == members[auto.solver].offsets.tolist()
    assert auto.lower_bound == lower_bound(problem)
    assert auto.optimal == (auto.peak == auto.lower_bound)


def test_the_result_is_read_only_and_measured():
    placement = pack(Problem([3, 5], [0, 0], [1, 1]))
    assert placement.offsets.dtype == np.int64
    assert not placement.offsets.flags.writeable
    assert (placement.peak, placement.lower_bound, placement.gap, placement.optimal) == (8, 8, 0.0, True)
    assert placement.seconds > 0


def test_the_gap_is_relative_to_the_bound():
    placement = pack(Problem([10, 20, 30, 40, 50], [0, 1, 2, 3, 0], [2, 3, 4, 5, 2]), "greedy_by_size")
    assert placement.gap == pytest.approx(90 / 80 - 1)


def test_nothing_to_place():
    placement = pack(Problem([], [], []))
    assert (placement.peak, placement.optimal, placement.gap, placement.offsets.tolist()) == (
        0,
        True,
        0.0,
        [],
    )


def test_an_unknown_solver_lists_the_names():
    with pytest.raises(
        UnknownSolverError, match="named 'worst'; expected one of: auto, best_fit, greedy_by_size"
    ):
        pack(Problem([1], [0], [1]), "worst")


def test_fixed_blocks_that_overlap_are_named_by_row():
    problem = Problem([1, 4, 4], [0, 0, 1], [9, 5, 5], fixed=[-1, 0, 2], gaps=[[1, 0, 1]])
    with pytest.raises(ProblemError, match="the fixed offsets of blocks 1 and 2 contradict each other"):
        pack(problem)


@pytest.mark.parametrize("options", [{"time_limit": -1}, {"time_limit": float("nan")}, {"threads": 0}])
def test_arguments_out_of_range(options):
    with pytest.raises(ProblemError, match=next(iter(options))):
        pack(Problem([1], [0], [1]), **options)


def test_a_time_limit_of_0_still_gives_the_heuristics_best():
    assert pack(data("minimalloc/input.12.csv"), time_limit=0).peak == 12


@pytest.mark.parametrize("name", ["auto", "best_fit"])
def test_names_are_taken_once(name):
    with pytest.raises(ValueError, match="exists"):
        register(name)(solvers["best_fit"])


@pytest.mark.parametrize("seed", range(5))
def test_training_steps_with_wrapped_blocks_reach_the_lower_bound(seed):
    problem = training_step(seed)
    placement = pack(problem)
    check(problem, placement.offsets)
    assert placement.optimal


@pytest.mark.parametrize("letter", "ABCDEFGHIJK")
def test_the_hard_problems_get_valid_placements(letter):
    problem = data(f"minimalloc/{letter}.1048576.csv")
    for name in solvers:
        check(problem, pack(problem, name).offsets)
