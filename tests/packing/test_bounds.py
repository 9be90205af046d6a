import itertools

import pytest
from hypothesis import given, settings

from stowplan.packing import Problem, check, lower_bound, lower_bound_moment

from .problems import placements_below, problems


def live_at(problem, tick):
    """Bytes alive at one tick, block by block."""
    total = 0
    for i in range(len(problem)):
        if problem.start[i] <= tick < problem.end[i]:
            gap = [g for g in problem.gaps.tolist() if g[0] == i and g[1] <= tick < g[2]]
            total += gap[0][4] - gap[0][3] if gap else int(problem.size[i])
    return total


@given(problems())
def test_is_at_least_what_is_alive_at_any_tick_and_is_attained(problem):
    ticks = range(-3, 25)
    bound, moment = lower_bound(problem), lower_bound_moment(problem)
    assert bound >= max(live_at(problem, t) for t in ticks)
    if len(problem) and (problem.alignment == 1).all() and (problem.fixed < 0).all():
        whole = int(problem.size.max())
        assert bound == max(whole, *(live_at(problem, t) for t in ticks))
        assert bound in (whole, live_at(problem, moment))


@pytest.mark.parametrize("alignment", [1, 4, 8])
def test_is_proved_for_aligned_blocks_alive_at_once(alignment):
    # All orders of stacking, exhaustively: the best peak is the bound.
    for sizes in itertools.product((1, 4, 6, 8), repeat=3):
        best = min(
            max(o + s for o, s in zip(stack(order, alignment), order, strict=True))
            for order in itertools.permutations(sizes)
        )
        assert lower_bound(Problem(sizes, [0] * 3, [1] * 3, alignment=alignment)) == best


def stack(sizes, alignment):
    offsets, top = [], 0
    for size in sizes:
        offsets.append(-(-top // alignment) * alignment)
        top = offsets[-1] + size
    return offsets


@settings(settings.get_profile("usual"))
@given(problems(most=3))
def test_no_placement_at_all_is_below_it(problem):
    # Exhaustive over small offsets: whatever is valid reaches the bound.
    for offsets in placements_below(problem, lower_bound(problem), 3000):
        with pytest.raises(AssertionError, match=r"conflict|placed at"):
            check(problem, offsets)


def test_nothing_needs_nothing():
    empty = Problem([], [], [])
    assert (lower_bound(empty), lower_bound_moment(empty)) == (0, None)
    assert lower_bound(Problem([0], [0], [1])) == 0


def test_windows_count_only_what_they_occupy():
    # Both are whole only outside the other's lifetime.
    problem = Problem([8, 8], [0, 2], [4, 9], gaps=[[0, 2, 4, 2, 5]])
    assert lower_bound(problem) == 11


def test_a_fixed_block_lifts_the_bound():
    assert lower_bound(Problem([5, 3], [0, 10], [1, 11], fixed=[-1, 100])) == 103
