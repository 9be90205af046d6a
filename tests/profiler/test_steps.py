"""From two step logs to a profile, on hand-made logs and against a reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stowplan.profiler import ESCAPED, StepLog, profile_step
from stowplan.profiler.events import ALLOCATE, EVENT_DTYPE, FREE, FREE_PREVIOUS


def log(*events: tuple[int, int, int]) -> StepLog:
    """Events as (kind, request, size); the time is 1000 times the position, from 1."""
    rows = [(1000 * (i + 1), size, 0, request, kind) for i, (kind, request, size) in enumerate(events)]
    return StepLog(np.array(rows, dtype=EVENT_DTYPE))


def test_the_picture_of_the_docstring() -> None:
    first = log((ALLOCATE, 0, 8), (ALLOCATE, 1, 4), (FREE, 0, 8), (ALLOCATE, 2, 16))
    second = log((ALLOCATE, 0, 8), (FREE_PREVIOUS, 2, 16), (ALLOCATE, 1, 4), (FREE, 0, 8), (ALLOCATE, 2, 16))
    profile = profile_step(first, second)
    assert profile.period == 5
    assert profile.size.tolist() == [8, 4, 16]
    assert profile.start.tolist() == [0, 2, 4]
    assert profile.end.tolist() == [3, ESCAPED, 6]
    assert profile.wrapped.tolist() == [False, False, True]
    assert profile.escaped.tolist() == [False, True, False]
    assert profile.alloc_ns.tolist() == [1000, 2000, 4000]
    assert profile.free_ns.tolist() == [3000, -1, 2000]
    assert profile.live_bytes().tolist() == [24, 8, 8, 0, 16]
    assert profile.planned_peak == 24


def test_blocks_freed_before_the_following_step_s_first_request() -> None:
    first = log((ALLOCATE, 0, 8))
    second = log((FREE_PREVIOUS, 0, 8), (ALLOCATE, 0, 8))
    profile = profile_step(first, second)
    assert (profile.start[0], profile.end[0], profile.period) == (1, 2, 2)
    assert profile.wrapped[0]
    start, end, gaps = profile.on_line(np.array([0]))
    assert (start[0], end[0], len(gaps)) == (1, 2, 0)


def test_a_block_alive_when_its_successor_comes_has_escaped() -> None:
    first = log((ALLOCATE, 0, 8), (ALLOCATE, 1, 4), (FREE, 1, 4))
    second = log((ALLOCATE, 0, 8), (FREE_PREVIOUS, 0, 8), (ALLOCATE, 1, 4), (FREE, 1, 4))
    assert profile_step(first, second).end.tolist() == [ESCAPED, 2]


def test_two_steps_as_one() -> None:
    first = log((ALLOCATE, 0, 8), (ALLOCATE, 1, 4), (FREE, 1, 4))
    step = log((ALLOCATE, 0, 8), (FREE_PREVIOUS, 0, 8), (ALLOCATE, 1, 4), (FREE, 1, 4))
    assert first.places().tolist() == [0, 1]
    assert step.places().tolist() == [2, 1]
    twice = step.times(2)
    assert twice.places().tolist() == [1, 1, 1, 1]
    profile = profile_step(twice, twice)
    assert profile.size.tolist() == [8, 4, 8, 4]
    assert (profile.end - profile.start).tolist() == [5, 1, 5, 1]
    assert profile.wrapped.tolist() == [False, False, True, False]


def test_the_time_is_unknown_where_the_recorder_noted_none() -> None:
    events = log((ALLOCATE, 0, 8), (FREE, 0, 8)).events.copy()
    events["time_ns"] = 0
    profile = profile_step(StepLog(events), StepLog(events))
    assert profile.alloc_ns.tolist() == profile.free_ns.tolist() == [-1]


def test_an_empty_step() -> None:
    profile = profile_step(log(), log())
    assert (len(profile), profile.period, profile.planned_peak) == (0, 0, 0)


@given(st.data())
def test_blocks_alive_together_are_alive_together_in_the_profile(data: st.DataObject) -> None:
    """Run a random step for ever; every pair that meets in steady state meets on the profile's circle, and no other."""
    n = data.draw(st.integers(1, 8))
    # Block i is freed before request (i + life) of the endless sequence of requests.
    lives = data.draw(st.lists(st.integers(1, n), min_size=n, max_size=n))
    logs, steps, born = [], 4, {}
    for step in range(steps):
        events = []
        for i in range(n):
            now = step * n + i
            for request, when in sorted(born.items()):
                if when <= now:
                    kind = FREE if request // n == step else FREE_PREVIOUS
                    events.append((kind, request % n, 1))
                    del born[request]
            events.append((ALLOCATE, i, 1))
            born[now] = now + lives[i]
        logs.append(log(*events))
    profile = profile_step(logs[2], logs[3])

    def meet_in_program(i: int, j: int) -> bool:
        return any(max(i, j + k * n) < min(i + lives[i], j + k * n + lives[j]) for k in (-1, 0, 1))

    period = profile.period
    on_circle = [{t % period for t in range(s, e)} for s, e in zip(profile.start, profile.end, strict=True)]
    starts = profile.start.tolist()
    for i in range(n):
        assert not profile.escaped[i]
        for j in range(i):
            at_requests = (on_circle[i] & on_circle[j]) & set(starts)
            assert bool(at_requests) == meet_in_program(i, j)
