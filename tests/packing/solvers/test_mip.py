import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from experiments.any_graph import training
from stowplan.errors import MissingDependencyError
from stowplan.packing import Problem, check, lower_bound, pack
from stowplan.packing.milp import solve_program
from stowplan.packing.placement import peak_of
from stowplan.packing.registry import PackingOptions
from stowplan.packing.solvers import mip as module
from stowplan.packing.solvers.mip import mip

from ...scheduling.reference.program import program_of
from ..problems import data, problems

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pulp")
pulp = pytest.importorskip("pulp", reason="PuLP is not installed; expected: pip install 'stowplan[mip]'")


@pytest.fixture(params=["HiGHS", "CBC"])
def backend(request, monkeypatch):
    if request.param == "CBC":
        monkeypatch.setattr(pulp.HiGHS, "available", lambda self: False)
        if not pulp.PULP_CBC_CMD().available():
            pytest.skip("PuLP has no CBC; expected: the one that its wheels bring along")
    elif not pulp.HiGHS().available():
        pytest.skip("highspy is not installed; expected: pip install 'stowplan[mip]'")
    return request.param


def stacked(problem):
    """A valid placement to start from that is far from good: everything above everything else."""
    offsets, top = np.zeros(len(problem), dtype=np.int64), 0
    for i in np.argsort(problem.fixed < 0, kind="stable"):
        aligned = -(-top // problem.alignment[i]) * problem.alignment[i]
        offsets[i] = problem.fixed[i] if problem.fixed[i] >= 0 else aligned
        top = max(top, offsets[i] + problem.size[i])
    return offsets


def solved(problem):
    """The solver alone, without the heuristics before it."""
    answer = mip(problem, PackingOptions(time_limit=60, incumbent=stacked(problem)))
    check(problem, answer.offsets)
    peak = peak_of(problem, answer.offsets)
    assert answer.lower_bound == peak
    return peak


@settings(settings.get_profile("dear"), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(problem=Problem([8, 8], [2, 0], [9, 4], gaps=[[1, 2, 4, 5, 8]]))  # a window above its offset
@given(problem=problems(most=5))
def test_is_as_low_as_the_exact_search(backend, problem):
    assert solved(problem) == pack(problem, "exact").peak


def test_a_proof_above_the_lower_bound(backend):
    # What is fixed leaves 2 bytes below it, too few for the other block: 7, though only 5 are ever alive.
    problem = Problem([2, 3], [0, 0], [5, 5], fixed=[2, -1])
    assert (lower_bound(problem), solved(problem)) == (5, 7)
    placement = pack(problem, "mip")
    assert (placement.peak, placement.lower_bound, placement.status) == (7, 7, "optimal")
    assert placement.witness == "a search found nothing below 7 bytes"


def test_a_program_that_highs_solves_wrongly_after_its_presolve():
    program = program_of(training(5, 228), budget=377)
    for variable in program.variables():
        variable.setInitialValue(0)
    assert solve_program(program, seconds=60, threads=1)
    assert round(pulp.value(program.objective)) == 5  # HiGHS 1.13 to 1.15.1 with presolve: 6, "optimal"


def test_starts_from_the_heuristics_and_ends_in_time():
    problem = data("minimalloc/B.1048576.csv")
    placement = pack(problem, "mip", time_limit=0)
    assert placement.peak == pack(problem, "best_fit_orders", time_limit=0).peak
    assert placement.status == "feasible"


def test_a_problem_too_large_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(module, "MOST_PAIRS", 3)
    problem = Problem([4] * 5, [0] * 5, [9] * 5)
    start = stacked(problem) + 4
    answer = mip(problem, PackingOptions(incumbent=start))
    assert answer.offsets.tolist() == start.tolist()
    assert answer.lower_bound == lower_bound(problem)


@pytest.mark.parametrize("bits", [30, 32, 47, 54])
def test_no_peak_is_called_the_least_that_is_not(bits):
    """Peaks near to many others, of numbers so large that floating-point arithmetic cannot tell them apart."""
    for seed in range(12):
        draws = np.random.default_rng(seed)
        n = int(draws.integers(7, 11))

        def lengths(count, draws=draws):
            return draws.integers(1, 6, count) * 2 ** (bits - 4) + draws.integers(-3, 4, count)

        start = draws.integers(0, 7, n)
        fixed = np.concatenate([lengths(1), np.full(n - 1, -1)])
        problem = Problem(lengths(n), start, start + draws.integers(1, 5, n), fixed=fixed)
        least = pack(problem, "exact")
        answer = mip(problem, PackingOptions(time_limit=5, incumbent=stacked(problem)))
        check(problem, answer.offsets)
        assert least.optimal
        assert answer.lower_bound <= least.peak


def test_numbers_too_large_for_the_program_leave_the_problem_as_it_is():
    draws = np.random.default_rng(0)
    start = draws.integers(0, 200, 300)
    problem = Problem(draws.integers(1, 2**54, 300), start, start + draws.integers(1, 30, 300))
    assert pack(problem, "mip", time_limit=1).peak == pack(problem, "best_fit_orders", time_limit=1).peak


def test_without_pulp_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pulp", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '.\[mip\]'"):
        mip(Problem([4], [0], [9]), PackingOptions(incumbent=np.array([4])))


def test_without_a_solver_the_error_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(pulp.HiGHS, "available", lambda self: False)
    monkeypatch.setattr(pulp.PULP_CBC_CMD, "available", lambda self: False)
    with pytest.raises(MissingDependencyError, match="neither HiGHS nor CBC"):
        mip(Problem([4], [0], [9]), PackingOptions(incumbent=np.array([4])))
