import numpy as np
import pytest
from hypothesis import given, settings

from stowplan.packing import Problem, check, lower_bound, lower_bound_moment, pack
from stowplan.packing.placement import peak_of
from stowplan.packing.solvers import peak_outward

from ..problems import problems, random_problem, training_step
from ..reference.greedy import greedy


def reference(problem: Problem) -> list[int]:
    """Each stack in turn, with the reference of the rule."""
    start, end, size = problem.start.tolist(), problem.end.tolist(), problem.size.tolist()
    bound, moment = lower_bound(problem), lower_bound_moment(problem)
    pieces = problem.pieces()
    mine = [range(a, b) for a, b in zip(pieces.first[:-1], pieces.first[1:], strict=True)]
    alive = [any(pieces.start[k] <= moment < pieces.end[k] for k in own) for own in mine]
    lifetime = [sum(int(pieces.end[k] - pieces.start[k]) for k in own) for own in mine]
    stacks = [(end, 5), ([-t for t in lifetime], 2), ([-e for e in end], 3)]
    best: list[int] = []
    for stack, runs in stacks:
        stuck = [0] * len(problem)

        def turn(i: int, stack: list[int] = stack, stuck: list[int] = stuck) -> tuple[int, ...]:
            if alive[i]:
                return (0, stack[i], -stuck[i], 0, -size[i], i)
            away = max(start[i] - moment, moment - end[i] + 1, 0)
            return (1, 0, -stuck[i], away, -size[i], i)

        for _ in range(runs):
            offsets = greedy(problem, sorted(range(len(problem)), key=turn))
            if not best or peak(problem, offsets) < peak(problem, best):
                best = offsets
            if peak(problem, best) <= bound or peak(problem, best) > (1 + peak_outward.NEAR) * bound:
                return best
            for i in range(len(problem)):
                stuck[i] += offsets[i] + size[i] > bound
    return best


def peak(problem: Problem, offsets: list[int]) -> int:
    return peak_of(problem, np.array(offsets, dtype=np.int64))


@settings(settings.get_profile("usual"))
@given(problems())
def test_equals_the_reference(problem):
    placement = pack(problem, "peak_outward")
    assert placement.offsets.tolist() == reference(problem)
    check(problem, placement.offsets)


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_reference_on_larger_problems(seed):
    problem = random_problem(seed)
    assert pack(problem, "peak_outward").offsets.tolist() == reference(problem)
    step = training_step(seed, 12)
    assert pack(step, "peak_outward").offsets.tolist() == reference(step)


def growing(caches: int, words: int) -> Problem:
    """At every word each cache is copied into one that is a unit larger, and freed."""
    blocks = []
    for word in range(words):
        for cache in range(caches):
            made = word * caches + cache
            blocks.append((word + 1, made, made + caches + 1))
    size, start, end = zip(*blocks, strict=True)
    return Problem(size, start, np.minimum(end, caches * words))


@pytest.mark.parametrize("caches", [2, 5, 12])
def test_memory_that_grows_reaches_the_lower_bound(caches):
    problem = growing(caches, 40)
    assert pack(problem, "peak_outward").optimal
    assert pack(problem).optimal
    for solver in ("best_fit", "best_fit_orders", "greedy_by_size", "greedy_in_order"):
        assert pack(problem, solver).gap > 0.1


def test_what_sticks_out_goes_first_the_next_time():
    #    3 | a a a a a a a a    a and b are the stack. Of the 3 bytes that b leaves, d gets the first and e the
    #    2 | b b b b . . .      second, so c goes above a. In the second run c comes before both.
    #    1 | b b b b e e e
    #    0 | b b b b d . .
    problem = Problem([101, 3, 2, 1, 1], [0, 0, 5, 4, 4], [8, 4, 7, 5, 7])
    assert pack(problem, "peak_outward", time_limit=0).offsets.tolist() == [3, 0, 104, 0, 1]  # one run
    assert pack(problem, "peak_outward").offsets.tolist() == [3, 0, 0, 0, 2]


def test_another_kind_of_problem_gets_one_run(monkeypatch):
    runs = []
    real = peak_outward.orders.peak_outward
    monkeypatch.setattr(peak_outward.orders, "peak_outward", lambda *keys: runs.append(keys) or real(*keys))
    problem = random_problem(0)
    assert pack(problem, "peak_outward").gap > peak_outward.NEAR
    assert len(runs) == 1


def test_no_blocks():
    assert pack(Problem([], [], []), "peak_outward").peak == 0
