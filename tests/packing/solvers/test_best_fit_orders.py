from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings

from stowplan.packing import Problem, check, lower_bound, lower_bound_moment, pack
from stowplan.packing.orders import backwards
from stowplan.packing.placement import peak_of
from stowplan.packing.solvers.best_fit_orders import reinserted, variants

from ..problems import changed, data, problems, random_problem, training_step
from ..reference.best_fit import best_fit
from ..reference.greedy import by_size, greedy


def reference(problem: Problem, runs: int = 16) -> list[int]:
    """Every variant in turn, with the references of the two rules."""
    bound, best = lower_bound(problem), None
    for as_seen, order in islice(variants(problem, lower_bound_moment(problem), 0), runs):
        offsets = best_fit(as_seen, order.tolist())
        if peak(problem, offsets) > bound:
            out = (np.array(offsets) + problem.size > bound) & (problem.fixed < 0)
            moved = greedy(problem, by_size(problem), np.where(out, -1, offsets).tolist())
            if peak(problem, moved) < peak(problem, offsets):
                offsets = moved
        if best is None or peak(problem, offsets) < peak(problem, best):
            best = offsets
        if peak(problem, offsets) <= bound:
            break
    return best


def peak(problem: Problem, offsets: list[int]) -> int:
    return peak_of(problem, np.array(offsets, dtype=np.int64))


@settings(settings.get_profile("usual"))
@given(problems())
def test_equals_the_references_in_turn(problem):
    placement = pack(problem, "best_fit_orders")
    assert placement.offsets.tolist() == reference(problem)
    check(problem, placement.offsets)


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_references_on_larger_problems(seed):
    problem = random_problem(seed, 80)
    assert pack(problem, "best_fit_orders").offsets.tolist() == reference(problem)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("layers", [60, 150])
def test_training_steps_reach_the_lower_bound(seed, layers):
    problem = training_step(seed, layers)
    placement = pack(problem, "best_fit_orders")
    check(problem, placement.offsets)
    assert placement.optimal


def test_a_language_model_s_step_reaches_the_lower_bound():
    assert pack(data("idealloc/G_1.csv"), "best_fit_orders").optimal


def test_what_sticks_out_is_put_into_a_hole():
    #  4 | c c     a and b lie at 0 and 2; c, above the bound of 5, fits between b and the bound.
    problem = Problem(size=[2, 2, 1], start=[0, 0, 0], end=[4, 4, 2])
    assert reinserted(problem, np.array([0, 2, 8]), 5).tolist() == [0, 2, 4]
    # Nothing is gained: the offsets stay.
    assert reinserted(problem, np.array([0, 3, 5]), 5).tolist() == [0, 3, 2]
    assert reinserted(problem, np.array([0, 2, 4]), 5).tolist() == [0, 2, 4]


@settings(settings.get_profile("usual"))
@given(problems())
def test_a_placement_is_valid_in_both_directions_of_time(problem):
    check(problem, pack(backwards(problem), "best_fit").offsets)
    assert backwards(backwards(problem)) == changed(problem)


def test_a_time_limit_of_0_leaves_one_run():
    problem = data("minimalloc/A.1048576.csv")
    first = next(variants(problem, lower_bound_moment(problem), 0))
    placement = pack(problem, "best_fit_orders", time_limit=0)
    assert placement.peak <= peak(problem, best_fit(first[0], first[1].tolist()))
