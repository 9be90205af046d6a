from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings

from stowplan.packing import Problem, check, lower_bound, lower_bound_moment, pack
from stowplan.packing.orders import backwards
from stowplan.packing.placement import peak_of
from stowplan.packing.problem import changed
from stowplan.packing.solvers.best_fit_orders import variants

from ..problems import problems, random_problem, training_step
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


@settings(settings.get_profile("usual"))
@given(problems())
def test_a_placement_is_valid_in_both_directions_of_time(problem):
    check(problem, pack(backwards(problem), "best_fit").offsets)
    assert backwards(backwards(problem)) == changed(problem)
