import math

import numpy as np
import pytest
from hypothesis import given, settings

from stowplan.packing import Problem, _search, check, check_fast, lower_bound, pack

from .partials import Partial, is_plain, partials, rectangles
from .problems import data, problems, random_problem
from .twins.best_fit import best_fit
from .twins.refill import refill as twin


def peak(problem: Problem, offsets: np.ndarray) -> int:
    return int((offsets + problem.size).max(initial=0))


def generated(n: int, live: float, seed: int = 0) -> Problem:
    """Arrivals one by one, exponential lifetimes, sizes over four orders of magnitude."""
    rng = np.random.default_rng(seed)
    size = 512 * np.rint(2 ** rng.uniform(0, 14, n)).astype(np.int64)
    start = np.arange(n)
    return Problem(size, start, start + 1 + rng.exponential(live, n).astype(np.int64))


@settings(max_examples=2000, deadline=None)
@given(partials())
def test_refill_equals_the_twin(partial):
    found = _search.refill(partial.problem, partial.order, partial.obstacles)
    assert [found[i] for i in partial.order] == twin(partial.blocks, partial.standing)
    check(partial.problem, partial.complete(found))


@settings(max_examples=500, deadline=None)
@given(partials())
def test_refill_stops_at_the_limit_exactly(partial):
    free = twin(partial.blocks, partial.standing)
    if not free:
        return
    top = max(x + b[2] for x, b in zip(free, partial.blocks, strict=True))
    assert _search.refill(partial.problem, partial.order, partial.obstacles, limit=top) is not None
    assert _search.refill(partial.problem, partial.order, partial.obstacles, limit=top - 1) is None


@pytest.mark.parametrize("seed", range(10))
def test_refill_equals_the_twin_on_larger_problems(seed):
    problem = random_problem(seed, 120)
    rng = np.random.default_rng(seed)
    plain = [i for i in range(len(problem)) if is_plain(problem, i)]
    partial = Partial(problem, [int(i) for i in rng.permutation(plain)[: len(plain) * 2 // 3]])
    found = _search.refill(problem, partial.order, partial.obstacles)
    assert [found[i] for i in partial.order] == twin(partial.blocks, partial.standing)
    check(problem, partial.complete(found))


def test_blocks_go_under_an_obstacle_and_on_top_of_it():
    #  4 | c c          The obstacle # hangs from 2 to 3. One block fits below it, the others go above.
    #  3 | b b
    #  2 | # #
    #  0 | a a
    problem = Problem(size=[2, 1, 1, 1], start=[0, 0, 0, 0], end=[2, 2, 2, 2], fixed=[-1, 2, -1, -1])
    assert _search.refill(problem, np.array([2, 3, 0]), np.array([[0, 2, 2, 3]])) == {2: 0, 3: 1, 0: 3}
    assert _search.refill(problem, np.array([0, 2, 3]), np.array([[0, 2, 2, 3]])) == {0: 0, 2: 3, 3: 4}


def first_start(problem: Problem) -> list[int]:
    """The first start of `large`: best fit for what is no rectangle, then the skyline by crowding."""
    plain = [i for i in range(len(problem)) if is_plain(problem, i)]
    first = problem.pieces().first
    odd = [i for i in range(len(problem)) if i not in set(plain) and first[i] < first[i + 1]]
    offsets = list(best_fit(problem)) if odd else np.maximum(problem.fixed, 0).tolist()
    standing = rectangles(problem, np.array(offsets), odd)
    alive = [(int(problem.start[i]), int(problem.end[i]), int(problem.size[i])) for i in plain]
    alive += [(a, b, d - c) for a, b, c, d in standing]
    starts = sorted({a for a, _, _ in alive})
    load = {t: sum(w for a, b, w in alive if a <= t < b) for t in starts}
    crowd = {i: max(load[t] for t in starts if problem.start[i] <= t < problem.end[i]) for i in plain}
    most = max(crowd.values(), default=1)
    width = column_widths(alive[: len(plain)], alive)
    key = {}
    for k, i in enumerate(plain):
        value = math.log(float(problem.size[i]))
        value += 5.0 * math.log(float(width[k]))
        value += 512.0 * (crowd[i] / most)
        key[i] = value
    # Equal keys go by first column, then by row.
    order = sorted(plain, key=lambda i: (-key[i], columns_before(int(problem.start[i]), alive), i))
    columns = (problem.start, problem.end, problem.size, problem.alignment)
    found = twin([tuple(int(c[i]) for c in columns) for i in order], standing)
    candidate = list(offsets)
    for i, x in zip(order, found, strict=True):
        candidate[i] = x
    if odd and peak(problem, np.array(candidate)) >= peak(problem, np.array(offsets)):
        return offsets
    return candidate


def cuts(alive: list[tuple[int, int, int]]) -> list[int]:
    """The ticks at which a column begins: starts that follow an end, or the very first."""
    edges = sorted((t, s) for a, b, _ in alive for t, s in ((a, 1), (b, 0)))
    return [t for k, (t, s) in enumerate(edges) if s and (k == 0 or not edges[k - 1][1])]


def columns_before(tick: int, alive: list[tuple[int, int, int]]) -> int:
    return sum(1 for cut in cuts(alive) if cut <= tick)


def column_widths(blocks: list[tuple[int, int, int]], alive: list[tuple[int, int, int]]) -> list[int]:
    begins = cuts(alive)
    return [1 + sum(1 for c in begins if a < c < b) for a, b, _ in blocks]


@settings(max_examples=1500, deadline=None)
@given(problems())
def test_the_first_start_equals_the_twin(problem):
    # An effort of one block buys one start and no repair.
    assert _search.large(problem, effort=1).tolist() == first_start(problem)


@settings(max_examples=1000, deadline=None)
@given(problems())
def test_placements_are_valid_and_repeatable(problem):
    offsets = _search.large(problem, effort=3000, seed=1)
    check(problem, offsets)
    assert _search.large(problem, effort=3000, seed=1).tolist() == offsets.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_repair_never_raises_the_peak(seed):
    problem = random_problem(seed, 400)
    before = _search.large(problem, effort=1)
    after = _search.large(problem, effort=100_000, seed=seed)
    check_fast(problem, after)
    assert lower_bound(problem) <= peak(problem, after) <= peak(problem, before)


def test_repair_lowers_a_long_problem():
    problem = generated(5000, 100)
    peaks = []
    before = _search.large(problem, effort=1)
    after = _search.large(problem, progress=lambda peak, seconds: peaks.append(peak))
    check_fast(problem, after)
    assert peak(problem, after) < peak(problem, before)
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == peak(problem, after)
    assert peak(problem, after) <= 1.04 * lower_bound(problem)


def test_many_live_blocks():
    problem = generated(20_000, 3000)
    placement = pack(problem, "large")
    assert placement.peak <= 1.045 * lower_bound(problem)


def test_pangu_below_what_greedy_by_size_finds():
    problem = data("large/pangu_2.6B.csv")
    placement = pack(problem, "large")
    assert placement.peak < 1.0076 * lower_bound(problem)


def test_no_blocks():
    assert _search.large(Problem([], [], [])).tolist() == []


def test_a_time_limit_of_zero_still_makes_one_start():
    problem = random_problem(1)
    offsets = _search.large(problem, time_limit=0)
    check(problem, offsets)
