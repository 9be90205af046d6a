import numpy as np
import pytest
from hypothesis import given, settings

from experiments.papers.somas import forbidden_pairs
from stowplan.packing import PackingOptions, Problem, pack, solvers
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


def test_more_pairs_than_memory_is_for_give_way_to_best_fit(monkeypatch):
    monkeypatch.setattr(by_conflicts, "MOST_PAIRS", 3)
    problem = Problem([1, 2, 3, 4], [0] * 4, [1] * 4)
    assert pack(problem, "by_conflicts").solver == "best_fit"


def test_sizes_near_the_largest_go_without_exact():
    # With more bytes than an eighth of what 64 bits hold, its marks for "never" would be offsets.
    size = np.array([649, 712, 1121, 1014, 818, 1139, 1026, 883]) << 50
    below = {2: [0], 3: [1, 2], 4: [0, 2, 3], 5: range(5), 6: range(6), 7: [1, 3, 6]}
    apart = [(a, b) for a, others in below.items() for b in others]
    found = pack(Problem(size, range(0, 16, 2), range(1, 16, 2), apart=apart), in_haste=True)
    assert found.peak >= max(size[a] + size[b] for a, b in apart)
    assert found.solver != "exact"
