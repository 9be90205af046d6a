import numpy as np
import pytest
from hypothesis import given, settings

from experiments.papers.somas import forbidden_pairs
from stowplan.packing import PackingOptions, Problem, pack, portfolio, solvers
from stowplan.packing.placement import peak_of
from stowplan.packing.solvers import by_conflicts

from ..problems import problems, random_problem
from ..reference import by_conflicts as reference


@settings(settings.get_profile("usual"))
@given(problems())
def test_the_first_run_is_the_reference_s(problem):
    found = solvers["by_conflicts"](problem, PackingOptions(effort=1)).offsets
    assert found.tolist() == reference.by_conflicts(problem, runs=1)


@pytest.mark.parametrize("seed", range(3))
def test_many_runs_are_the_reference_s(seed):
    problem = random_problem(seed, 60)
    found = [solvers["by_conflicts"](problem, PackingOptions(effort=e)).offsets.tolist() for e in (1, 10**6)]
    assert found[0] == reference.by_conflicts(problem, runs=1)
    assert peak_of(problem, np.array(found[1])) <= peak_of(
        problem, np.array(reference.by_conflicts(problem, 99))
    )


def test_very_many_forbidden_pairs_come_near_the_live_bound():
    problem, bound = forbidden_pairs(0)
    assert pack(problem, "by_conflicts").peak <= 1.07 * bound < pack(problem, "peak_outward").peak


def test_it_takes_the_place_of_the_others_where_pairs_are_kept_apart():
    few = Problem([4] * 10, range(10), range(5, 15))
    names = [name for name, _ in portfolio.steps(few, PackingOptions(), apart=10)]
    assert names == ["best_fit", "by_conflicts", "exact"]
    assert "by_conflicts" not in [name for name, _ in portfolio.steps(few, PackingOptions(), apart=9)]


def test_more_pairs_than_memory_is_for_give_way_to_best_fit(monkeypatch):
    monkeypatch.setattr(by_conflicts, "MOST_PAIRS", 3)
    problem = Problem([1, 2, 3, 4], [0] * 4, [1] * 4)
    assert pack(problem, "by_conflicts").solver == "best_fit"
