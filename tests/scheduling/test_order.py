"""The order of operators: the published cases, every solver against all orders, and what the solution promises."""

from __future__ import annotations

import random
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import ScheduleError, UnknownSolverError
from stowplan.papers.olla.ilp import peak_of
from stowplan.scheduling import Schedule, StepGraph, Way, require_valid, simulate
from stowplan.scheduling.bounds import bound_orders
from stowplan.scheduling.ordering import OrderingProgress, order, solvers
from stowplan.scheduling.ordering.problem import OrderProblem

from .graphs import random_graph, random_order
from .reference import order as reference

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pulp")

SEEDS = st.integers(0, 2**40)
COMPILED = ("greedy", "exact", "local", "auto")
needs_pulp = pytest.mark.skipif(
    find_spec("pulp") is None, reason="PuLP is not installed; expected: pip install 'stowplan[mip]'"
)
PROVING = ("exact", "auto", pytest.param("ilp", marks=needs_pulp))


def kept(graph: StepGraph, numbers: np.ndarray) -> Schedule:
    """Run in this order and keep everything as long as it is read."""
    return Schedule(numbers, np.full(graph.values, int(Way.KEPT)))


def pairs() -> StepGraph:
    """OLLA's pathological: eight operators that write a value each, and eight that read it, at given steps."""
    sizes, made = [1, 9, 1, 8, 1, 7, 8, 7], [1, 2, 4, 5, 7, 8, 11, 14]
    read = [10, 3, 13, 6, 16, 9, 12, 15]
    return StepGraph(
        [[read.index(t)] if t in read else [] for t in range(1, 17)],
        [[made.index(t)] if t in made else [] for t in range(1, 17)],
        sizes,
    )


@pytest.mark.parametrize("solver", PROVING)
@pytest.mark.parametrize(("after", "least"), [([], 130), ([2], 150)])
def test_the_published_diamond(solver: str, after: list[int], least: int) -> None:
    """A writes what B reads, B what C and D read, D what E does, C and E what F does; and C may come before E."""
    reads, writes = [[], [0], [1], [2], [3], [4, 5], [6]], [[0], [1, 2], [5], [3], [4], [6], []]
    rows = [[], [], [], [], after, [], []]
    graph = StepGraph(reads, writes, [10, 20, 30, 40, 50, 60, 10], after=rows)
    found = order(graph, solver)
    assert (found.peak, found.lower_bound, found.optimal) == (least, least, True)


@pytest.mark.parametrize("solver", PROVING)
def test_the_pathological_case_needs_10_only_in_its_own_order(solver: str) -> None:
    found = order(pairs(), solver)
    assert (found.before, found.peak, found.optimal) == (10, 9, True)


def test_300_random_graphs_against_all_orders() -> None:
    improved = 0
    for seed in range(300):
        graph = random_graph(seed, 6 + seed % 6)
        found = order(graph, ("exact", "auto")[seed % 2], time_limit=None)
        assert (found.peak, found.optimal) == (reference.least_peak(graph), True), seed
        greedy = order(graph, "greedy")
        assert bound_orders(graph) <= greedy.lower_bound <= found.peak <= greedy.peak, seed
        improved += found.peak < found.before
    assert improved > 50


@needs_pulp
@given(SEEDS, st.integers(1, 9))
@settings(settings.get_profile("dear"))
def test_the_integer_program_agrees(seed: int, operators: int) -> None:
    graph = random_graph(seed, operators)
    found = order(graph, "ilp", time_limit=60)
    assert (found.peak, found.optimal) == (reference.least_peak(graph), True)


@given(SEEDS, st.integers(1, 25))
@settings(settings.get_profile("dear"))
def test_the_problem_has_the_peaks_that_the_simulator_has(seed: int, operators: int) -> None:
    graph = random_graph(seed, operators)
    some = random_order(graph, random.Random(seed))
    problem = OrderProblem.of(graph)
    assert peak_of(problem, some) == simulate(graph, kept(graph, some)).peak


@pytest.mark.parametrize("solver", ["exact", "auto", "local"])
@pytest.mark.parametrize("seed", range(4))
def test_layers_of_which_every_order_is_known(solver: str, seed: int) -> None:
    graph = reference.layered(18, 36, 6, seed)
    found = order(graph, solver, time_limit=None if solver in ("exact", "auto") else 1)
    assert found.peak == reference.least_peak(graph)


def test_chains_and_trees_need_no_search() -> None:
    chain = StepGraph([[i - 1] if i else [] for i in range(50)], [[i] for i in range(50)], range(1, 51))
    found = order(chain)
    assert (found.peak, found.optimal, found.states, found.solver) == (99, True, 0, "recorded")
    assert found.order.tolist() == list(range(50))


def test_an_update_runs_as_soon_as_its_gradient_is_there() -> None:
    # Four gradients of 10 bytes, each of a parameter; the updates stand last in the order recorded.
    graph = StepGraph([[]] * 4 + [[i] for i in range(4)], [[i] for i in range(4)] + [[]] * 4, [10] * 4)
    found = order(graph)
    assert (found.before, found.peak, found.optimal, found.saved) == (40, 10, True, 0.75)


@pytest.mark.parametrize("operators", [0, 1])
@pytest.mark.parametrize("solver", PROVING)
def test_hardly_any_operators(operators: int, solver: str) -> None:
    graph = StepGraph([[]] * operators, [[0]] * operators, [7] * operators)
    found = order(graph, solver)
    assert found.order.tolist() == list(range(operators))
    assert (found.peak, found.lower_bound, found.optimal) == (7 * operators, 7 * operators, True)
    assert (found.gap, found.saved) == (0.0, 0.0)


def test_progress_hears_of_improvements_and_can_end_the_search() -> None:
    graph, heard = reference.layered(300, 700, 30, 0), list[OrderingProgress]()

    def stop(progress: OrderingProgress) -> bool:
        heard.append(progress)
        return len(heard) < 3

    found = order(graph, time_limit=None, progress=stop)
    assert not found.optimal
    assert len(heard) == 3
    assert [p.peak for p in heard] == sorted((p.peak for p in heard), reverse=True)
    assert found.lower_bound < found.peak <= heard[-1].peak < found.before
    assert found.gap > 0


def test_what_progress_raises_comes_out() -> None:
    def fail(progress: OrderingProgress) -> None:
        raise RuntimeError("from the caller")

    with pytest.raises(RuntimeError, match="from the caller"):
        order(reference.layered(300, 700, 30, 0), progress=fail)


def test_ctrl_c_ends_the_search_with_the_best_so_far() -> None:
    def interrupt(progress: OrderingProgress) -> None:
        raise KeyboardInterrupt

    graph = reference.layered(300, 700, 30, 0)
    found = order(graph, time_limit=None, progress=interrupt)
    assert found.peak <= found.before
    require_valid(graph, kept(graph, found.order))


def test_bad_arguments_are_named() -> None:
    graph = pairs()
    with pytest.raises(UnknownSolverError, match="no solver named 'best'; expected one of: auto, exact"):
        order(graph, "best")
    with pytest.raises(ScheduleError, match="time_limit is -1; expected seconds, 0 or more, or None"):
        order(graph, time_limit=-1)
    assert set(solvers) == {*COMPILED, "ilp"}


@pytest.mark.parametrize("seed", range(3))
def test_100_operators_with_236_edges_are_proved(seed: int) -> None:
    found = order(reference.layered(100, 236, 5 + seed, seed), time_limit=5)
    assert found.optimal
