import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.packing import Answer, PackingOptions, Problem, check, pack, solvers
from stowplan.packing.placement import peak_of

from ..problems import data, digest, problems, random_problem

pytestmark = pytest.mark.no_cover


def searched(problem: Problem, **options: object) -> Answer:
    """What it makes of best fit's placement, checked."""
    answer = solvers["search"](
        problem, PackingOptions(incumbent=pack(problem, "best_fit").offsets, **options)
    )
    check(problem, answer.offsets)
    return answer


def test_searches_are_those_recorded():
    found = [
        searched(random_problem(seed, 60), effort=3, seed=seed, threads=1 + seed % 3).offsets.tolist()
        for seed in range(40)
    ]
    assert digest(found) == 559198779


def test_a_wider_beam_finds_what_best_fit_misses():
    problem = data("minimalloc/C.1048576.csv")
    assert peak_of(problem, searched(problem, effort=12).offsets) < pack(problem, "best_fit").peak


@settings(settings.get_profile("cheap"))
@given(problems(), st.integers(1, 3))
def test_never_worse_than_its_start_and_repeatable(problem, threads):
    one, other = (searched(problem, effort=2, threads=threads, seed=5).offsets for _ in range(2))
    assert peak_of(problem, one) <= pack(problem, "best_fit").peak
    assert one.tolist() == other.tolist()


def test_progress_tells_every_improvement():
    problem, peaks = data("minimalloc/A.1048576.csv"), []
    offsets = searched(problem, effort=10, report=lambda peak: peaks.append(peak) or True).offsets
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == peak_of(problem, offsets)


def test_thousands_of_blocks_are_repaired_in_windows():
    problem = random_problem(2, 5000)
    placement = pack(problem, "search", threads=2)
    assert placement.peak <= pack(problem, "window_repair").peak
