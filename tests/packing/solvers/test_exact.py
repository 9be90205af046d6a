import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import ProblemError
from stowplan.packing import Problem, check, lower_bound, pack
from stowplan.packing.placement import peak_of
from stowplan.packing.solvers.exact import solve

from ..problems import changed, data, draw_gaps, problems, random_problem
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


def test_components_without_a_placement_below_another_s_bound():
    # Blocks 0 and 1 contradict each other; block 2 alone needs more than they could.
    problem = Problem([2, 2, 100], [0, 0, 5], [1, 1, 6], fixed=[0, 1, -1])
    assert solve(problem).status == "infeasible"


@settings(settings.get_profile("cheap"))
@given(tiny_problems())
def test_equals_trying_every_offset(problem):
    expected = smallest_peak(problem)
    found = solve(problem)
    if expected is None:
        assert (found.status, found.offsets) == ("infeasible", None)
        return
    assert (found.status, found.peak, found.lower_bound) == ("optimal", expected, expected)
    check(problem, found.offsets)
    assert peak_of(problem, found.offsets) == expected

    enough = solve(problem, expected)
    assert (enough.status, enough.peak) in [("optimal", expected), ("feasible", expected)]
    check(problem, enough.offsets)
    if expected:
        short = solve(problem, expected - 1)
        assert (short.status, short.offsets) == ("infeasible", None)
        assert short.lower_bound == expected


@settings(settings.get_profile("usual"))
@given(problems(), st.integers(0, 3))
def test_the_answer_does_not_depend_on_the_orders_drawn(problem, seed):
    one, other = solve(problem, node_limit=20_000), solve(problem, node_limit=20_000, seed=seed)
    check(problem, one.offsets)
    check(problem, other.offsets)
    if one.status == other.status == "optimal":
        assert one.peak == other.peak
    assert max(one.lower_bound, other.lower_bound) <= min(one.peak, other.peak)


@pytest.mark.parametrize("seed", [0, 2])
def test_larger_problems_are_never_worse_than_the_heuristics(seed):
    problem = random_problem(seed, n=80)
    best = pack(problem)
    found = solve(problem, incumbent=best.offsets, node_limit=5_000)
    check(problem, found.offsets)
    assert lower_bound(problem) <= found.peak <= best.peak


@pytest.mark.parametrize("name", "ABCDEFGHIJK")
def test_minimalloc_with_the_capacity(name):
    problem = data(f"minimalloc/{name}.1048576.csv")
    found = solve(problem, 1024 * KIB)
    check(problem, found.offsets)
    assert found.peak <= 1024 * KIB
    assert found.status == ("feasible" if name in "CDJ" else "optimal")


@pytest.mark.parametrize("name", "ABCEFGHIK")
def test_minimalloc_without_a_capacity(name):
    problem = data(f"minimalloc/{name}.1048576.csv")
    found = solve(problem)
    check(problem, found.offsets)
    assert (found.status, found.peak) == ("optimal", (1015 if name == "C" else 1024) * KIB)


@pytest.mark.parametrize(("name", "known"), [("D", 1030144), ("J", 1035264)])
def test_minimalloc_open_problems(name, known):
    problem = data(f"minimalloc/{name}.1048576.csv")
    found = solve(problem, known)
    check(problem, found.offsets)
    assert (found.status, found.peak <= known) == ("feasible", True)


def test_below_the_lower_bound_there_is_nothing():
    problem = data("minimalloc/A.1048576.csv")
    found = solve(problem, 1024 * KIB - 1)
    assert (found.status, found.lower_bound, found.nodes) == ("infeasible", 1024 * KIB, 0)


def test_an_optimum_above_the_lower_bound_is_proved():
    # The first block has to stand on a multiple of 2 beside each of the others, which cannot go to 1.
    problem = Problem([1, 1, 1], [0, 0, 1], [2, 1, 2], alignment=[2, 3, 4])
    found = solve(problem)
    assert (found.status, lower_bound(problem)) == ("optimal", 2)
    assert found.peak == smallest_peak(problem) == 3


def test_components_are_solved_apart():
    # Two copies of a problem, far from each other in time and in different units.
    part = data("minimalloc/I.1048576.csv")
    n = len(part)
    size = np.concatenate([part.size, 3 * part.size])
    shift = int(part.end.max())
    problem = Problem(
        size, np.concatenate([part.start, part.start + shift]), np.concatenate([part.end, part.end + shift])
    )
    found = solve(problem)
    check(problem, found.offsets)
    assert (found.status, found.peak) == ("optimal", 3 * 1024 * KIB)
    assert (found.offsets[n:] % (3 * KIB) == 0).all()


def test_components_of_different_units_meet_one_bound():
    # The first is at 6, the other's bound is 5: only 4 or less would do, and that is not enough.
    problem = Problem([2, 2, 2, 5], [0, 0, 0, 9], [1, 1, 1, 10])
    found = solve(problem)
    assert (found.status, found.peak, found.lower_bound) == ("optimal", 6, 6)
    problem = Problem(
        [2, 1, 1, 2, 1, 2], [1, 2, 4, 3, 2, 1], [2, 5, 5, 5, 5, 2], alignment=[2, 2, 4, 1, 3, 4]
    )
    assert solve(problem).peak == smallest_peak(problem)


def test_sizes_beyond_32_bits():
    problem = Problem([2**40 + 1, 2**41, 2**40 - 1, 3], [0, 0, 1, 1], [1, 2, 2, 3])
    found = solve(problem)
    check(problem, found.offsets)
    assert (found.status, found.peak) == ("optimal", 2**41 + 2**40 + 2)


def test_deterministic():
    problem = data("minimalloc/D.1048576.csv")
    one, other = (solve(problem, node_limit=30_000, seed=7) for _ in range(2))
    assert one.offsets.tolist() == other.offsets.tolist()
    assert one[:3] == other[:3]


def test_no_time_still_gives_a_placement():
    problem = data("minimalloc/D.1048576.csv")
    found = solve(problem, time_limit=0)
    check(problem, found.offsets)
    assert found.status == "feasible"
    assert solve(problem, 986112, time_limit=0).status == "unknown"


def test_progress_reports_and_stops():
    problem = data("minimalloc/D.1048576.csv")
    seen = []

    def stop_below(peak, bound, nodes):
        seen.append((peak, bound, nodes))
        return peak is None or peak > 1040 * KIB

    found = solve(problem, progress=stop_below)
    assert found.status == "feasible"
    peaks = [peak for peak, _, _ in seen if peak is not None]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] == found.peak <= 1040 * KIB
    assert {bound for _, bound, _ in seen} == {986112}


def test_an_error_in_progress_comes_out():
    with pytest.raises(ZeroDivisionError):
        solve(data("minimalloc/D.1048576.csv"), progress=lambda *_: 1 / 0)


def test_ctrl_c_returns_the_best_so_far():
    def press(peak, bound, nodes):
        raise KeyboardInterrupt

    problem = data("minimalloc/D.1048576.csv")
    found = solve(problem, progress=press)
    assert found.interrupted
    check(problem, found.offsets)


def test_registered():
    placement = pack(data("minimalloc/F.1048576.csv"), "exact")
    assert (placement.peak, placement.optimal, placement.solver) == (1024 * KIB, True, "exact")


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


def test_registered_without_time_returns_the_heuristics():
    problem = data("minimalloc/D.1048576.csv")
    heuristics = [pack(problem, name, time_limit=0).peak for name in ("best_fit", "best_fit_orders")]
    assert pack(problem, "exact", time_limit=0).peak == min(heuristics)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": -1}, "capacity is -1"),
        ({"capacity": 2**63}, "capacity is"),
        ({"time_limit": -1}, "time_limit is -1"),
        ({"time_limit": float("nan")}, "time_limit is nan"),
        ({"node_limit": -1}, "node_limit is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"incumbent": [0]}, r"expected \(2,\)"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ProblemError, match=message):
        solve(Problem([1, 2], [0, 0], [1, 1]), **arguments)
