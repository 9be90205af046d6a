import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import InfeasibleError, ProblemError
from stowplan.packing import PackingOptions, Problem, check, lower_bound, pack, solvers
from stowplan.packing.placement import peak_of
from stowplan.packing.problem import changed

from ..problems import data, draw_gaps, problems, random_problem
from ..reference.exact import smallest_peak

pytestmark = pytest.mark.no_cover

KIB = 1024


@st.composite
def tiny_problems(draw: st.DrawFn) -> Problem:
    """Up to 5 blocks with gaps, windows, alignments and fixed offsets, which may contradict each other."""
    n = draw(st.integers(0, 5))
    size = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    start = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    end = [s + draw(st.integers(1, 5)) for s in start]
    alignment = [1] * n
    if draw(st.booleans()):
        alignment = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=n, max_size=n))
    fixed = [-1] * n
    if draw(st.booleans()):
        fixed = [draw(st.sampled_from([-1, -1, 0, 1, 3])) * a if a > 1 else -1 for a in alignment]
        fixed = [f if f >= 0 else -1 for f in fixed]
    gaps = draw_gaps(draw, size, start, end)
    return Problem(size, start, end, gaps=gaps, alignment=alignment, fixed=fixed)


@settings(settings.get_profile("cheap"))
@given(tiny_problems())
def test_equals_trying_every_offset(problem):
    expected = smallest_peak(problem)
    if expected is None:
        with pytest.raises(ProblemError, match="contradict each other"):
            pack(problem, "exact")
        return
    found = pack(problem, "exact")
    assert (found.status, found.peak, found.lower_bound) == ("optimal", expected, expected)
    # From a start above what is fixed, worse than any heuristic's, in case these have found the optimum.
    worst = np.where(problem.fixed < 0, 6 * np.arange(3, len(problem) + 3), problem.fixed)
    offsets = solvers["exact"](problem, PackingOptions(incumbent=worst)).offsets
    check(problem, offsets)
    assert peak_of(problem, offsets) == expected
    check(problem, pack(problem, "exact", capacity=expected).offsets)
    if expected:
        with pytest.raises(InfeasibleError):
            pack(problem, "exact", capacity=expected - 1)


def minimised(problem: Problem, **options: object) -> tuple[int, int]:
    """The peak reached from best fit's placement, which is checked, and the bound proved."""
    answer = solvers["exact"](problem, PackingOptions(incumbent=pack(problem, "best_fit").offsets, **options))
    check(problem, answer.offsets)
    return peak_of(problem, answer.offsets), answer.lower_bound


@settings(settings.get_profile("usual"))
@given(problems(), st.integers(0, 3))
def test_the_answer_does_not_depend_on_the_orders_drawn(problem, seed):
    found = [minimised(problem, effort=20_000, seed=s) for s in (0, seed)]
    peaks, bounds = zip(*found, strict=True)
    assert max(bounds) <= min(peaks)
    if all(peak == bound for peak, bound in found):
        assert peaks[0] == peaks[1]


@pytest.mark.parametrize("name", "ABCDEFGHIJK")
def test_minimalloc_with_the_capacity(name):
    problem = data(f"minimalloc/{name}.1048576.csv")
    found = pack(problem, "exact", capacity=1024 * KIB)
    assert found.peak <= 1024 * KIB
    assert found.status == ("feasible" if name in "CDJ" else "optimal")


def test_an_optimum_above_the_lower_bound_is_proved():
    # The first block has to stand on a multiple of 2 beside each of the others, which cannot go to 1.
    problem = Problem([1, 1, 1], [0, 0, 1], [2, 1, 2], alignment=[2, 3, 4])
    found = pack(problem, "exact")
    assert (found.status, lower_bound(problem)) == ("optimal", 2)
    assert found.peak == smallest_peak(problem) == 3


def test_sizes_beyond_32_bits():
    problem = Problem([2**40 + 1, 2**41, 2**40 - 1, 3], [0, 0, 1, 1], [1, 2, 2, 3])
    assert minimised(problem) == (2**41 + 2**40 + 2, 2**41 + 2**40 + 2)


def test_progress_reports_and_stops():
    problem, seen = data("minimalloc/D.1048576.csv"), []

    def stop_below(peak: int) -> bool:
        seen.append(peak)
        return peak > 1040 * KIB

    peak, bound = minimised(problem, report=stop_below)
    assert bound == 986112
    assert seen == sorted(set(seen), reverse=True)
    assert seen[-1] == peak <= 1040 * KIB


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_windows_that_support_each_other_in_a_circle_end(seed):
    # Rising bounds could go around such a circle for ever, and so could their explanation.
    problem = random_problem(seed)
    pairs = np.flatnonzero(problem.fixed < 0)[:40].reshape(-1, 4)
    tied = changed(problem, alignment=1, contiguous=pairs)
    start = pack(tied, "best_fit")
    found = pack(tied, "exact", time_limit=0.5)
    check(tied, found.offsets)
    assert found.peak <= start.peak
