import numpy as np
import pytest

from stowplan.packing import PackingOptions, Problem, check_fast, lower_bound, pack, solvers
from stowplan.packing.placement import peak_of

from ..problems import data, digest, random_problem

pytestmark = pytest.mark.no_cover


def repaired(problem: Problem, **options: object) -> np.ndarray:
    return solvers["window_repair"](problem, PackingOptions(**options)).offsets


def generated(n: int, live: float) -> Problem:
    """Arrivals one by one, exponential lifetimes, sizes over four orders of magnitude."""
    rng = np.random.default_rng(0)
    size = 512 * np.rint(2 ** rng.uniform(0, 14, n)).astype(np.int64)
    start = np.arange(n)
    return Problem(size, start, start + 1 + rng.exponential(live, n).astype(np.int64))


def test_starts_and_repairs_are_those_recorded():
    starts, repairs = [], []
    for seed in range(40):
        problem = random_problem(seed, 120)
        starts.append(repaired(problem, effort=1).tolist())  # pays for one start and no repair
        repairs.append(repaired(problem, effort=20_000, seed=seed).tolist())
    assert (digest(starts), digest(repairs)) == (1715860750, 879473453)


def test_blocks_go_under_an_obstacle_and_on_top_of_it():
    #  3 | b b          The fixed block # lies from 2 to 3. One block fits below it, the other goes above.
    #  2 | # #
    #  0 | a a
    problem = Problem(size=[2, 1, 1], start=[0, 0, 0], end=[2, 2, 2], fixed=[-1, 2, -1])
    assert repaired(problem, effort=1).tolist() == [0, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_repair_never_raises_the_peak(seed):
    problem = random_problem(seed, 400)
    before, after = repaired(problem, effort=1), repaired(problem, effort=100_000, seed=seed)
    check_fast(problem, after)
    assert lower_bound(problem) <= peak_of(problem, after) <= peak_of(problem, before)


def test_repair_lowers_a_long_problem():
    problem, peaks = generated(5000, 100), []
    before, after = (
        repaired(problem, effort=1),
        repaired(problem, report=lambda peak: peaks.append(peak) or True),
    )
    check_fast(problem, after)
    assert peak_of(problem, after) < peak_of(problem, before)
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == peak_of(problem, after)
    assert peak_of(problem, after) <= 1.04 * lower_bound(problem)


def test_pangu_below_what_the_greedy_rule_by_size_finds():
    problem = data("idealloc/pangu_2.6B.csv")
    assert pack(problem, "window_repair").peak < 1.0076 * lower_bound(problem)
