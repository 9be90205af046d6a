"""Steps without phases: values go after any use, and come again with the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments.any_graph import layered, training
from stowplan.errors import BudgetError, FormatError, ScheduleError
from stowplan.scheduling import (
    Phase,
    Relation,
    Schedule,
    StepGraph,
    bound_schedules,
    check,
    lean,
    require_valid,
    schedule,
    simulate,
)
from stowplan.scheduling.ordering import order
from stowplan.scheduling.unsafe_recomputation import hazards

from .graphs import random_graph
from .nets import brute_force, renumbered, skipping

pytestmark = [pytest.mark.no_cover, pytest.mark.filterwarnings("ignore::DeprecationWarning:pulp")]

seeds = st.integers(0, 10**6)


def idle() -> StepGraph:
    """0 is read by 1 and, much later, by 4; 2 and 3 are large."""
    return StepGraph(
        [[], [0], [1], [2], [0, 3]], [[i] for i in range(5)], [10, 1, 20, 20, 1], seconds=[1.0] * 5
    )


def test_a_value_goes_between_two_uses() -> None:
    graph = idle()
    assert simulate(graph, lean(graph)).peak == 50
    found = schedule(graph, 41)
    assert (found.peak, found.extra_seconds) == (40, 1.0)
    assert found.outcome.recomputed == ((4, (0,)),)
    assert check(graph, found.schedule) == 40


def test_a_saved_schedule_with_another_digit_is_refused(tmp_path) -> None:
    graph, path = idle(), tmp_path / "schedule.json"
    made = schedule(graph, 41).schedule
    made.save(path)
    rows = [one.drops.rows() for one in (made, Schedule.load(path, graph)) if one.drops is not None]
    assert rows == [[[1], [], [], [], []]] * 2
    written = path.read_bytes()
    digits = [at for at, byte in enumerate(written) if chr(byte).isdecimal()]
    assert len(digits) > 15
    for at in digits:
        path.write_bytes(written[:at] + bytes([48 + (written[at] - 47) % 10]) + written[at + 1 :])
        with pytest.raises(FormatError, match=r"schedule\.json: "):
            Schedule.load(path, graph)
    # A file of before there were checksums.
    path.write_bytes(written[: written.index(b', "checksum"')] + b"}")
    assert Schedule.load(path, graph).order.tolist() == list(range(5))


@pytest.mark.parametrize(
    ("drops", "phase", "way", "message"),
    [
        ([[1], [], [], [], []], [0, 0, 0, 0, 1], 1, "in a step with phases"),
        ([[1], [], [], [], []], [0] * 5, 0, "not DROPPED"),
        ([[2], [], [], [], []], [0] * 5, 1, "which use it"),
        ([[1]], [0] * 5, 1, "1 rows of drops"),
    ],
)
def test_drops_that_may_not_be(drops, phase, way, message) -> None:
    graph = StepGraph([[], [0], [1], [2], [0, 3]], [[i] for i in range(5)], [1] * 5, phase=phase)
    with pytest.raises(ScheduleError, match=message):
        require_valid(graph, Schedule(np.arange(5), np.array([way, 0, 0, 0, 0]), Relation(drops)))


def test_what_was_changed_in_place_is_not_read_again() -> None:
    """2 is made from a view of 0, which operator 3 then changes: 2 may not be made again."""
    graph = StepGraph(
        [[], [0], [1], [0], [2], [2]],
        [[0], [1], [2], [0], [3], [4]],
        [8, 0, 8, 1, 1],
        [0, 0, 2, 3, 4],
        phase=[Phase.FORWARD] * 6,
    )
    dropped = Schedule(np.arange(6), np.array([0, 0, 1, 0, 0]), Relation([[], [], [4], [], []]))
    assert hazards(graph, dropped) == {2}
    with pytest.raises(ScheduleError, match="has been written since"):
        check(graph, dropped)


def optimum_of() -> Callable[[StepGraph, int], float | None]:
    """The oracle; what asks for it is skipped where its solver is not installed."""
    pytest.importorskip("highspy", reason="HiGHS is not installed; expected: pip install 'stowplan[mip]'")
    return pytest.importorskip("tests.scheduling.reference.program").optimum


@given(seeds, st.sampled_from([0.9, 0.8, 0.7, 0.6, 0.5]))
@settings(settings.get_profile("dear"))
def test_the_program_is_exact(seed: int, share: float) -> None:
    graph = layered(5, 6, 2, seed)
    budget = int(share * simulate(graph, lean(graph)).peak)
    assert optimum_of()(graph, budget) == brute_force(graph, budget)[0]


@pytest.mark.parametrize(
    "make",
    [lambda seed: layered(10, 22, 3, seed), lambda seed: training(5, seed), lambda seed: skipping(10, seed)],
)
@given(seeds, st.sampled_from([0.9, 0.8]))
@example(950, 0.8)  # in a training step nothing keeps to it
@example(494, 0.9)  # with skips local search alone keeps to it
@settings(settings.get_profile("dearest"))
def test_search_is_near_the_optimum_of_an_order(make, seed: int, share: float) -> None:
    optimum = optimum_of()
    graph = make(seed)
    budget = int(share * simulate(graph, lean(graph)).peak)
    fastest = optimum(graph, budget)
    try:
        found = schedule(graph, budget, reorder=False)
    except BudgetError:
        assert fastest is None
    else:
        assert fastest is not None
        assert fastest <= found.extra_seconds <= 1.02 * fastest


def test_local_search_begins_where_no_single_move_helps() -> None:
    graph = skipping(10, 0)
    assert schedule(graph, 231, reorder=False).extra_seconds == 52


def test_the_order_with_the_smallest_peak_is_not_always_the_fastest() -> None:
    graph = layered(10, 22, 3, 0)
    best = order(graph)
    budget = int(0.9 * best.peak)
    fixed = schedule(renumbered(graph, best.order.tolist()), budget, reorder=False)
    assert schedule(graph, budget).extra_seconds < fixed.extra_seconds / 3


@given(seeds, st.floats(0.5, 1))
@example(1153, 0.5)  # what is found within the least may not be made again, as what is found within less may
@settings(settings.get_profile("dear"))
def test_simulator_and_checker_agree_on_what_is_found(seed: int, share: float) -> None:
    graph = random_graph(seed, phases=False)
    budget = int(share * simulate(graph, lean(graph)).peak)
    try:
        found = schedule(graph, budget)
    except BudgetError as error:
        budget = error.least
        found = schedule(graph, budget)
    assert bound_schedules(graph) <= found.peak <= budget
    assert check(graph, found.schedule) == found.peak
