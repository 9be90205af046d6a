import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.packing import Problem, _search, check, lower_bound, pack

from ..partials import Partial, is_plain, partials
from ..problems import data, digest, problems, random_problem

pytestmark = pytest.mark.no_cover

SHAPES = st.fixed_dictionaries(
    {
        "width": st.integers(1, 6),
        "branch": st.integers(1, 8),
        "foot": st.sampled_from([0.5, 0.8, 0.95]),
        "power": st.integers(1, 4),
    }
)


def peak(problem: Problem, offsets: np.ndarray) -> int:
    return int((offsets + problem.size).max(initial=0))


@settings(settings.get_profile("cheap"))
@given(partials(10), SHAPES)
def test_a_beam_is_valid_and_keeps_to_its_limit(partial, shape):
    def beam(limit=None):
        return _search.beam(partial.problem, partial.order, partial.obstacles, **shape, limit=limit)

    found = beam()
    check(partial.problem, partial.complete(found))
    top = max((found[i] + int(partial.problem.size[i]) for i in partial.order), default=0)
    lower = beam(top - 1)  # whatever is above the limit is not looked at, so that another way may be found
    assert lower is None or all(lower[i] + partial.problem.size[i] < top for i in partial.order)


def few_sizes(seed: int) -> Problem:
    """A problem with many ties."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 8, 14)
    return Problem(rng.integers(1, 4, 14), start, start + rng.integers(1, 6, 14))


def test_beams_are_those_recorded():
    found = []
    for seed in range(200):
        problem = random_problem(seed, 60) if seed % 5 == 0 else few_sizes(seed)
        partial = Partial(problem, [i for i in range(len(problem)) if is_plain(problem, i)])
        shape = {"width": 1 + seed % 6, "branch": 1 + seed % 7, "power": 1 + seed % 4}
        foot = (0.5, 0.8, 0.95)[seed % 3]
        found.append(_search.beam(problem, partial.order, partial.obstacles, foot=foot, **shape))
    assert digest(found) == 3125186949


def test_a_wider_beam_finds_what_best_fit_misses():
    problem = data("minimalloc/C.1048576.csv")
    offsets = _search.search(problem, effort=12)
    check(problem, offsets)
    assert peak(problem, offsets) < pack(problem, "best_fit").peak


@settings(settings.get_profile("cheap"))
@given(problems(), st.integers(1, 3))
def test_never_worse_than_the_heuristics_and_repeatable(problem, threads):
    offsets = _search.search(problem, effort=2, threads=threads, seed=5)
    check(problem, offsets)
    for name in ("best_fit", "greedy_by_size"):
        assert peak(problem, offsets) <= pack(problem, name).peak
    assert _search.search(problem, effort=2, threads=threads, seed=5).tolist() == offsets.tolist()


@pytest.mark.parametrize("threads", [1, 3])
def test_equal_seeds_give_equal_placements(threads):
    problem = data("minimalloc/B.1048576.csv")
    first = _search.search(problem, effort=5, threads=threads, seed=3)
    assert _search.search(problem, effort=5, threads=threads, seed=3).tolist() == first.tolist()


def test_progress_tells_every_improvement():
    problem = data("minimalloc/A.1048576.csv")
    peaks = []
    offsets = _search.search(problem, effort=10, progress=lambda peak, seconds: peaks.append((peak, seconds)))
    assert [p for p, _ in peaks] == sorted({p for p, _ in peaks}, reverse=True)
    assert [t for _, t in peaks] == sorted(t for _, t in peaks)
    assert peaks[-1][0] == peak(problem, offsets)


def test_a_cancelled_search_returns_its_start():
    problem = data("minimalloc/A.1048576.csv")
    cancel = _search.Cancel()
    cancel.set()
    offsets = _search.search(problem, time_limit=60, cancel=cancel)
    check(problem, offsets)


def test_cancelling_from_the_progress_stops_it():
    problem = data("minimalloc/K.1048576.csv")
    cancel = _search.Cancel()
    offsets = _search.search(problem, time_limit=600, cancel=cancel, progress=lambda *_: cancel.set())
    check(problem, offsets)
    assert cancel.is_set()


def test_what_progress_raises_stops_the_search_and_comes_back():
    problem = data("minimalloc/A.1048576.csv")

    def fail(peak: int, seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _search.search(problem, time_limit=600, progress=fail)


def test_the_optimum_of_g_1():
    problem = data("idealloc/G_1.csv")
    assert pack(problem, "search").peak == lower_bound(problem)


def test_thousands_of_blocks_are_given_to_large():
    problem = random_problem(2, 5000)
    placement = pack(problem, "search", threads=2)
    assert placement.peak <= pack(problem, "window_repair").peak


def test_no_blocks():
    assert _search.search(Problem([], [], [])).tolist() == []
