"""A step is enter, begin and end, each one call for all of its lanes; what goes wrong there leaves no step behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyPool, Profile
from stowplan.allocator._core import CorePlan, HandlerPool, LaneStart, StepOutcome
from stowplan.allocator.cache import PlanCache
from stowplan.allocator.lane import Lane
from stowplan.planning import make_plan
from stowplan.profiler import _recorder
from stowplan.profiler.default_handler import default_handler

SIZE = 5000


@pytest.fixture
def host() -> HandlerPool:
    return HandlerPool("steps", default_handler(), 0)


def plan_of_one(size: int = SIZE) -> CorePlan:
    """Plan a step of one block, freed in it."""
    profile = Profile(np.array([size]), np.array([0]), np.array([1]), period=2)
    return PlanCache(1).install(None, make_plan(profile, alignment=64)).core


def start(**changed: Any) -> LaneStart:
    """Return how a lane's part of a step begins that has a plan."""
    return LaneStart(0, plan_of_one(), arena_bytes=1 << 20, timestamps=False)._replace(**changed)


def run(host: HandlerPool, *starts: LaneStart) -> list[tuple[int, Any]]:
    """Run a step of one block, with these beginnings of its lanes."""
    entered = host.enter()
    assert entered is not None
    step_slot, step, lanes = entered
    assert lanes == [start.lane for start in starts]
    host.begin(list(starts))
    outer = _recorder.set_handler(host.handler)
    np.empty(SIZE, np.uint8)
    _recorder.set_handler(outer)
    return host.end(step_slot, step)


# ------------------------------------------------------------------------------------------------------------ the core


def test_a_thread_runs_one_step_at_a_time(host: HandlerPool) -> None:
    assert host.enter() == (0, 1, [0])
    assert host.enter() is None
    assert host.end(0, 1) == []  # it never began
    assert host.enter() == (0, 2, [0])
    host.end(0, 1)  # it has ended
    assert host.enter() is None


def test_a_step_ends_with_the_thread_that_ends_in_it(host: HandlerPool) -> None:
    entered = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: entered.append(host.enter()))
        thread.start()
        thread.join(600)
        while Path(f"/proc/self/task/{thread.native_id}").exists():  # a join does not wait for the last of it
            time.sleep(1e-3)
    assert entered == [(0, 1, [0]), (0, 2, [0]), (0, 3, [0])]
    assert host.enter() == (0, 4, [0])
    host.end(0, 3)
    assert host.enter() is None


def test_an_arena_is_there_when_the_step_begins(host: HandlerPool) -> None:
    assert host.arena_bytes(0) == 0
    ((lane, (log, complete, clean, tag)),) = run(host, start())
    assert host.arena_bytes(0) == 1 << 20
    assert (lane, len(log), complete, clean, tag > 0) == (0, 0, False, True, True)
    assert host.counters()["requests"]["replayed"] == 1


def test_a_step_begins_without_plans_that_have_no_memory(host: HandlerPool) -> None:
    ((_, (log, complete, clean, tag)),) = run(host, start(plan=plan_of_one(1 << 60), arena_bytes=1 << 60))
    assert host.arena_bytes(0) == 0
    assert (len(log), complete, clean, tag) == (2, True, False, 0)


def test_a_clean_step_s_log_is_kept_for_its_timestamps(host: HandlerPool) -> None:
    for timestamps in (True, False, True):
        ((_, (log, complete, clean, _)),) = run(host, start(timestamps=timestamps))
        assert clean
        assert complete == timestamps
        assert [time_ns > 0 for time_ns in log["time_ns"]] == ([True, True] if timestamps else [])


def test_the_steps_of_threads_that_a_fork_leaves_behind_end(host: HandlerPool) -> None:
    own = host.enter()
    assert own is not None
    with ThreadPoolExecutor(1) as other:
        step_slot, step, (lane,) = other.submit(host.enter).result(60) or pytest.fail("it runs no step")
        host.begin([LaneStart(lane)])
        assert host.end_steps_of_others() == [step_slot]
        assert host.end_steps_of_others() == []
        assert host.enter() is None  # this thread's goes on
        assert other.submit(host.enter).result(60) == (step_slot, step + 1, [lane])


# ------------------------------------------------------------------------------------------------------------ the pool


def test_a_step_slot_is_free_once_its_last_step_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, order = NumpyPool(), []
    judging, go_on = threading.Event(), threading.Event()
    step_ended, next_step = Lane.step_ended, Lane.next_step

    def slow_judge(self: Lane, outcome: StepOutcome, failed: bool) -> None:
        judging.set()
        assert go_on.wait(600)
        step_ended(self, outcome, failed)
        order.append("judged")

    def note(self: Lane, key: Hashable, keeps_results: bool) -> LaneStart:
        order.append("next")
        return next_step(self, key, keeps_results)

    def step() -> None:
        with pool.step():
            pass

    first = threading.Thread(target=step)
    with monkeypatch.context() as patch:
        patch.setattr(Lane, "step_ended", slow_judge)
        first.start()
        assert judging.wait(600)
        patch.setattr(Lane, "next_step", note)
        second = threading.Thread(target=step)
        second.start()
        time.sleep(0.05)  # it would be there by now
        go_on.set()
        first.join(600)
        second.join(600)
    assert order == ["judged", "next", "judged"]
    assert pool.stats.steps == 2


def test_a_device_that_fails_to_wait_leaves_no_step_behind() -> None:
    """As a step begins, a lane would go to another stream, for which nobody may use its memory any more."""
    pytest.importorskip("cupy")
    from .simulated_pool import COPY, OTHER, SimulatedPool, Stream

    pool = SimulatedPool()

    def step(*streams: Stream) -> None:
        with pool.step():
            pool.empty(1000)
            for stream in streams:
                pool.empty(3000, stream)

    step(COPY)
    step(COPY)
    for _ in range(10):
        step()
    step(OTHER)

    pool.cuda.fails = lambda name, size: name in ("event_record", "device_synchronize")
    step()
    pool.cuda.fails = lambda name, size: False
    step()
    assert pool.stats.steps == 15
