import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.packing import Problem, _search, check, check_fast, lower_bound, pack

from ..partials import Partial, is_plain, partials
from ..problems import data, digest, problems, random_problem

pytestmark = pytest.mark.no_cover


def peak(problem: Problem, offsets: np.ndarray) -> int:
    return int((offsets + problem.size).max(initial=0))


def generated(n: int, live: float) -> Problem:
    """Arrivals one by one, exponential lifetimes, sizes over four orders of magnitude."""
    rng = np.random.default_rng(0)
    size = 512 * np.rint(2 ** rng.uniform(0, 14, n)).astype(np.int64)
    start = np.arange(n)
    return Problem(size, start, start + 1 + rng.exponential(live, n).astype(np.int64))


WORTHS = st.lists(st.floats(0.25, 4).map(lambda x: round(x, 1)), min_size=12, max_size=12)


@settings(settings.get_profile("cheap"))
@given(partials(), WORTHS, st.integers(0, 8))
def test_a_refill_is_valid_and_stops_at_the_limit_exactly(partial, worths, reach):
    def refill(limit=None):
        rows = np.sort(partial.order)
        return _search.refill(partial.problem, rows, worths, reach, partial.obstacles, limit=limit)

    found = refill()
    check(partial.problem, partial.complete(found))
    if found:
        top = max(x + int(partial.problem.size[i]) for i, x in found.items())
        assert refill(top) == found
        assert refill(top - 1) is None


def test_refills_and_first_starts_are_those_recorded():
    refills, starts = [], []
    for seed in range(40):
        problem = random_problem(seed, 120)
        rng = np.random.default_rng(seed)
        plain = rng.permutation([i for i in range(len(problem)) if is_plain(problem, i)])
        partial = Partial(problem, plain[: len(plain) * 2 // 3].tolist())
        worths = np.exp(rng.normal(size=len(partial.order))).round(3).tolist()
        refills.append(_search.refill(problem, np.sort(partial.order), worths, seed % 9, partial.obstacles))
        starts.append(_search.window_repair(problem, effort=1).tolist())  # pays for one start and no repair
    assert (digest(refills), digest(starts)) == (2099754409, 1715860750)


def test_blocks_go_under_an_obstacle_and_on_top_of_it():
    #  4 | c c          The obstacle # hangs from 2 to 3. One block fits below it, the others go above.
    #  3 | b b
    #  2 | # #
    #  0 | a a
    problem = Problem(size=[2, 1, 1, 1], start=[0, 0, 0, 0], end=[2, 2, 2, 2], fixed=[-1, 2, -1, -1])
    rows, obstacle = np.array([0, 2, 3]), np.array([[0, 2, 2, 3]])
    assert _search.refill(problem, rows, [1, 3, 2], 0, obstacle) == {2: 0, 3: 1, 0: 3}
    assert _search.refill(problem, rows, [3, 2, 1], 0, obstacle) == {0: 0, 2: 3, 3: 4}


def test_blocks_that_leave_no_sliver_go_before_worthier_ones():
    #  4 |# _ b #      In columns. On the floor between the walls # of size 4, b leaves a sliver as large as itself:
    #  2 |# c c #      it fits by 1/2. c leaves none. The column of d makes the sliver.
    #  0 |# c c #
    problem = Problem(size=[4, 4, 2, 2, 1], start=[0, 6, 2, 1, 1], end=[1, 7, 6, 6, 2])
    rows, none = np.arange(5), np.empty((0, 4), dtype=np.int64)
    b, c = 2, 3
    for reach, worth, lowest in ((0, 1.1, b), (1, 1.9, c), (5, 1.9, c), (5, 2.1, b)):
        assert _search.refill(problem, rows, [9, 9, worth, 1, 0.1], reach, none)[lowest] == 0


@settings(settings.get_profile("cheap"))
@given(problems())
def test_placements_are_valid_and_repeatable(problem):
    offsets = _search.window_repair(problem, effort=3000, seed=1)
    check(problem, offsets)
    assert _search.window_repair(problem, effort=3000, seed=1).tolist() == offsets.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_repair_never_raises_the_peak(seed):
    problem = random_problem(seed, 400)
    before = _search.window_repair(problem, effort=1)
    after = _search.window_repair(problem, effort=100_000, seed=seed)
    check_fast(problem, after)
    assert lower_bound(problem) <= peak(problem, after) <= peak(problem, before)


def test_repair_lowers_a_long_problem():
    problem = generated(5000, 100)
    peaks = []
    before = _search.window_repair(problem, effort=1)
    after = _search.window_repair(problem, progress=lambda peak, seconds: peaks.append(peak))
    check_fast(problem, after)
    assert peak(problem, after) < peak(problem, before)
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == peak(problem, after)
    assert peak(problem, after) <= 1.04 * lower_bound(problem)


def test_many_live_blocks():
    problem = generated(20_000, 3000)
    placement = pack(problem, "window_repair")
    assert placement.peak <= 1.025 * lower_bound(problem)


def test_pangu_below_what_greedy_by_size_finds():
    problem = data("idealloc/pangu_2.6B.csv")
    placement = pack(problem, "window_repair")
    assert placement.peak < 1.0076 * lower_bound(problem)


def test_no_blocks():
    assert _search.window_repair(Problem([], [], [])).tolist() == []


def test_a_time_limit_of_zero_still_makes_one_start_of_a_small_problem():
    problem = random_problem(1)
    offsets = _search.window_repair(problem, time_limit=0)
    check(problem, offsets)
