"""Where a step begins and ends: a slot waits until its last step is judged, and what fails leaves no step behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor

import pytest

from stowplan import NumpyPool
from stowplan.allocator._core import HandlerPool, LaneStart, StepOutcome
from stowplan.allocator.lane import Lane
from stowplan.profiler.default_handler import default_handler


def test_the_steps_of_threads_that_a_fork_leaves_behind_end() -> None:
    host = HandlerPool("steps", default_handler(), 0)
    assert host.enter() is not None
    with ThreadPoolExecutor(1) as other:
        step_slot, step, (lane,) = other.submit(host.enter).result(60) or pytest.fail("it runs no step")
        host.begin([LaneStart(lane)])
        assert host.end_steps_of_others() == [step_slot]
        assert host.end_steps_of_others() == []
        assert host.enter() is None  # this thread's goes on
        assert other.submit(host.enter).result(60) == (step_slot, step + 1, [lane])


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
