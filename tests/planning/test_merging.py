"""Merging a plan with a step of another structure: the match against its reference, and the merged plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.planning import problem_of
from stowplan.planning.merging import merge
from stowplan.planning.merging._merging import match
from stowplan.planning.merging.merge import FORGET
from stowplan.planning.merging.merged import ROOM
from stowplan.planning.merging.requests import NEVER
from stowplan.profiler import StepLog
from stowplan.profiler.events import ALLOCATE, EVENT_DTYPE, FREE, FREE_PREVIOUS
from stowplan.profiler.steps import profile_step

from .reference.matching import PlannedRow, StepColumn
from .reference.matching import match as reference

SIZES = st.sampled_from([1, 3, 7])  # the logarithm of one more is exact


def matched(plan: list[PlannedRow], step: list[StepColumn]) -> list[int]:
    column = lambda values: np.array(list(values), dtype=np.int64)  # noqa: E731
    n, m = len(plan), len(step)
    number = match(
        column(p.least for p in plan),
        column(p.most for p in plan),
        column(p.kind for p in plan),
        column(s.size for s in step),
        column(s.kind for s in step),
        column(s.vote for s in step),
        np.zeros(n + 1, dtype=np.int64),
        np.full(n + 1, m, dtype=np.int64),
    )
    return [int(k) for k in number]


@settings(settings.get_profile("usual"))
@given(
    st.lists(st.tuples(SIZES, SIZES, st.integers(0, 2)), max_size=8),
    st.lists(st.tuples(SIZES, st.integers(0, 2), st.integers(-1, 7)), max_size=8),
)
def test_the_match_is_the_reference_s(
    planned: list[tuple[int, int, int]], asked: list[tuple[int, int, int]]
) -> None:
    plan = [PlannedRow(min(a, b), max(a, b), kind) for a, b, kind in planned]
    step = [StepColumn(*column) for column in asked]
    assert matched(plan, step) == reference(plan, step)


def test_a_band_must_lead_from_corner_to_corner() -> None:
    column = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="no band"):
        match(column, column, column, column, column, column, np.zeros(3, np.int64), np.ones(3, np.int64))
    with pytest.raises(ValueError, match="disagree"):
        match(column, column, column[:1], column, column, column, np.zeros(3, np.int64), np.ones(3, np.int64))


# ------------------------------------------------------------------------------------------------- the merged plan


def loops(running: Sequence[int], body: int = 6) -> StepLog:
    """A step: a loop forth that keeps a block of an iteration, and back, that frees it; a gradient of the step before.

    `running` sentences take part in the iterations: sizes are proportional to them.
    """
    events: list[tuple[int, int, int]] = []
    requests = 0
    kept = []

    def ask(size: int) -> int:
        nonlocal requests
        events.append((ALLOCATE, size, requests))
        requests += 1
        return requests - 1

    def work(n: int) -> None:
        for _ in range(body):
            events.append((FREE, 0, ask(64 * n)))

    for n in running:
        kept.append(ask(5000))
        work(n)
    events.append((FREE_PREVIOUS, 0, len(running) * 2 * (body + 1) - body))
    for n in reversed(running):
        work(n)
        events.append((FREE, 0, kept.pop()))
        ask(100_000) if n == running[-1] and len(kept) == len(running) - 1 else None
    log = np.zeros(len(events), dtype=EVENT_DTYPE)
    log["kind"], log["size"], log["request"] = np.array(events, dtype=np.int64).T
    return StepLog(log)


def test_a_longer_and_a_larger_step_are_both_in_the_merged_plan() -> None:
    longer, larger = loops([20] * 80), loops([30] * 40)
    profile = profile_step(longer, larger)
    result = merge(profile, None, larger, longer)
    assert result is not None
    merged, known = result
    assert len(merged) == len(profile)
    assert merged.size.max() == 100_000
    small = merged.size < 5000
    assert set(merged.size[small].tolist()) == {64 * 20, 64 * 30}
    assert set(known.least[small].tolist()) == {64 * 20}
    assert (merged.size[small] == 64 * 30).sum() == (larger.requested < 5000).sum()
    assert set(known.life[~small].tolist()) >= {int(NEVER)}  # the gradient
    assert merged.planned_peak <= profile.planned_peak + 2 * 64 * 30


def test_what_the_plan_lacks_is_put_in() -> None:
    shorter, longer = loops([20] * 40), loops([20] * 80)
    result = merge(profile_step(shorter, longer), None, longer, shorter)
    assert result is not None
    assert len(result[0]) == len(longer.requested)
    assert np.array_equal(result[0].size, longer.requested)
    again = merge(*result, shorter, longer)
    assert again is not None
    assert np.array_equal(again[0].size, longer.requested)


def test_steps_with_little_in_common_are_not_merged() -> None:
    one, other = loops([20] * 40), loops([1] * 40, body=1)
    assert merge(profile_step(one, other), None, other, one) is None


def test_slots_have_room_beyond_the_sizes_seen() -> None:
    smaller, larger = loops([20] * 40), loops([36] * 40)
    result = merge(profile_step(smaller, larger), None, larger, smaller)
    assert result is not None
    merged, known = result
    varied = known.least < merged.size
    assert set(known.room(merged)[varied].tolist()) == {(36 - 20) * 64 // ROOM}
    assert not known.room(merged)[~varied].any()
    problem, rows = problem_of(merged, 64, known)
    assert (problem.size >= merged.size[rows] + known.room(merged)[rows]).all()


def test_what_steps_do_not_ask_for_any_more_is_forgotten() -> None:
    shorter, longer = loops([20] * 40), loops([20] * 80)
    result = merge(profile_step(longer, shorter), None, shorter, longer)
    for _ in range(FORGET - 1):
        assert result is not None
        assert len(result[0]) == len(longer.requested)
        result = merge(*result, shorter, longer)
    assert result is not None
    result = merge(*result, shorter, shorter)
    assert result is not None
    assert np.array_equal(result[0].size, shorter.requested)
    assert result[0].planned_peak == profile_step(shorter, longer).planned_peak
