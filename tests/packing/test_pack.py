import numpy as np
import pytest
from hypothesis import given, settings

from stowplan.errors import InfeasibleError, ProblemError, UnknownSolverError
from stowplan.packing import Problem, check, lower_bound, pack, registry, solvers
from stowplan.packing.registry import Answer, PackingOptions, register

from .problems import HEURISTICS, data, problems, random_problem


@settings(settings.get_profile("dear"))
@given(problems())
def test_auto_is_never_worse_than_its_members(problem):
    auto = pack(problem)
    check(problem, auto.offsets)
    members = {name: pack(problem, name) for name in HEURISTICS}
    assert auto.peak <= min(p.peak for p in members.values())
    if auto.solver in members:
        assert auto.offsets.tolist() == members[auto.solver].offsets.tolist()
    assert auto.lower_bound >= lower_bound(problem)
    assert auto.optimal == (auto.peak == auto.lower_bound)


def test_the_result_is_read_only_and_measured():
    placement = pack(Problem([3, 5], [0, 0], [1, 1]))
    assert placement.offsets.dtype == np.int64
    assert not placement.offsets.flags.writeable
    assert (placement.peak, placement.lower_bound, placement.gap, placement.optimal) == (8, 8, 0.0, True)
    assert placement.seconds > 0


def test_nothing_to_place():
    placement = pack(Problem([], [], []))
    assert (placement.peak, placement.optimal, placement.gap) == (0, True, 0.0)
    assert (placement.offsets.size, placement.witness) == (0, "there are no blocks")


def test_an_unknown_solver_lists_the_names():
    with pytest.raises(UnknownSolverError, match="named 'worst'; expected one of: auto, best_fit"):
        pack(Problem([1], [0], [1]), "worst")


@pytest.mark.parametrize("name", ["greedy_by_size", "greedy_by_breadth", "greedy_in_order"])
def test_a_solver_that_was_removed_says_what_to_use(name):
    with pytest.raises(UnknownSolverError, match=f"the solver '{name}' was removed; expected auto"):
        pack(Problem([1], [0], [1]), name)


def test_a_former_name_finds_the_solver_and_is_not_listed():
    problem = random_problem(1, 40)
    for former, name in (("large", "window_repair"), ("outward", "peak_outward")):
        placement = pack(problem, former)
        assert placement.solver == name
        assert placement.offsets.tolist() == pack(problem, name).offsets.tolist()
        assert former not in solvers
        with pytest.raises(ValueError, match=f"'{former}' exists"):
            register(former)


def test_fixed_blocks_that_overlap_are_named_by_row():
    problem = Problem([1, 4, 4], [0, 0, 1], [9, 5, 5], fixed=[-1, 0, 2], gaps=[[1, 0, 1]])
    with pytest.raises(ProblemError, match="the fixed offsets of blocks 1 and 2 contradict each other"):
        pack(problem)


@pytest.mark.parametrize(
    "options", [{"time_limit": -1}, {"time_limit": float("nan")}, {"threads": 0}, {"capacity": -1}]
)
def test_arguments_out_of_range(options):
    with pytest.raises(ProblemError, match=next(iter(options))):
        pack(Problem([1], [0], [1]), **options)


def test_a_time_limit_of_0_still_gives_the_heuristics_best():
    assert pack(data("minimalloc/input.12.csv"), time_limit=0).peak == 12


def test_a_heuristic_that_is_not_done_in_time_gives_way_to_best_fit():
    solver = "peak_outward"
    rows = np.arange(2_000)
    problem = Problem(rows % 7 + 1, rows, rows + len(rows))  # two million pairs alive together
    assert pack(problem, solver, time_limit=0).solver == "best_fit"
    assert pack(problem, solver, time_limit=1000).solver == solver
    with pytest.raises(InfeasibleError, match="found in time"):
        pack(problem, solver, time_limit=0, capacity=10**6)


def test_window_repair_keeps_to_a_time_limit_that_is_over_in_its_first_start():
    start = np.random.default_rng(0).integers(0, 20_000, 10_000)
    problem = Problem(start % 999 + 1, start, start + 10_000)  # more looks than lie between two at the clock
    assert solvers["window_repair"](problem, PackingOptions(time_limit=0)).offsets is None
    assert solvers["window_repair"](problem, PackingOptions(effort=1)).offsets is not None


def test_capacities_below_the_bound_are_refused_with_its_witness():
    with pytest.raises(InfeasibleError, match=r"capacity of 15 bytes .* of 16: .* alive at tick 20 need 16"):
        pack(Problem([5, 7, 9], [0, 10, 20], [15, 30, 30]), capacity=15)


def test_a_capacity_is_enough():
    problem = Problem([10, 20, 30, 40, 50], [0, 1, 2, 3, 0], [2, 3, 4, 5, 2])
    assert pack(problem, "best_fit").status == "feasible"
    assert pack(problem, "best_fit", capacity=90).status == "feasible"
    unknown = pack(problem, "best_fit", capacity=85)
    assert (unknown.status, unknown.peak, unknown.optimal) == ("unknown", 90, False)
    # It stops at the first that is low enough.
    assert pack(data("minimalloc/A.1048576.csv"), capacity=10**9).solver == "best_fit"


@pytest.fixture
def scripted():
    """Register a solver for one test."""
    names = []

    def add(name, function):
        register(name)(function)
        names.append(name)

    yield add
    for name in names:
        registry._solvers.pop(name)


HARD = Problem([10, 20, 30, 40, 50], [0, 1, 2, 3, 0], [2, 3, 4, 5, 2])  # best fit: 90, optimum 80


def test_a_proof_makes_the_bound_and_the_witness(scripted):
    scripted("prover", lambda problem, options: Answer(np.array([50, 70, 40, 0, 0]), 90))
    placement = pack(HARD, "prover")
    assert (placement.status, placement.lower_bound) == ("optimal", 90)
    assert placement.witness == "a search found nothing below 90 bytes"


def test_a_proof_refuses_a_capacity(scripted):
    scripted("refuter", lambda problem, options: Answer(None, options.capacity + 1))
    with pytest.raises(InfeasibleError, match="capacity of 85 bytes: a search was finished without one"):
        pack(HARD, "refuter", capacity=85)


def test_a_solver_that_finds_nothing_in_time_says_so(scripted):
    scripted("late", lambda problem, options: Answer(None, 0))
    with pytest.raises(InfeasibleError, match="85 bytes was found in time; the lower bound is 80 bytes"):
        pack(HARD, "late", capacity=85)


def test_progress_hears_of_improvements_and_may_end_the_search(scripted):
    heard = []
    best = pack(data("minimalloc/A.1048576.csv"), progress=heard.append)
    assert [p.peak for p in heard] == sorted({p.peak for p in heard}, reverse=True)
    assert (heard[-1].peak, heard[-1].solver) == (best.peak, best.solver)
    assert heard[0].lower_bound == best.lower_bound
    first = pack(data("minimalloc/A.1048576.csv"), progress=lambda progress: False)
    assert first.peak == heard[0].peak


def test_an_interrupt_returns_the_best_so_far(monkeypatch):
    def interrupted(problem, options):
        raise KeyboardInterrupt

    monkeypatch.setitem(registry._solvers, "best_fit_orders", interrupted)
    placement = pack(data("minimalloc/A.1048576.csv"))
    check(data("minimalloc/A.1048576.csv"), placement.offsets)
    assert placement.solver == "best_fit"
    with pytest.raises(KeyboardInterrupt):
        pack(HARD, "best_fit_orders")
