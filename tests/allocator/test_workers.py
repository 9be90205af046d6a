"""A pool's threads: the planner's (jobs in their order, results once), and the one that takes the outcomes of steps."""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from stowplan.allocator.workers import Planner, start_outcome_thread

# --------------------------------------------------------------------------------------------------------- the planner


def test_jobs_run_one_at_a_time_and_not_on_the_caller_s_thread() -> None:
    planner: Planner[int] = Planner()
    one_at_a_time = threading.Lock()

    def job() -> int:
        assert one_at_a_time.acquire(blocking=False)
        time.sleep(1e-4)
        one_at_a_time.release()
        return threading.get_ident()

    for number in range(50):
        planner.submit(job)
        assert number % 10 or planner.wait(600)  # the worker goes, and comes again
    assert planner.wait(600)
    threads = planner.collect()
    assert len(threads) == 50
    assert threading.get_ident() not in threads


def test_done_jobs_are_collected_while_others_run() -> None:
    planner: Planner[str] = Planner()
    began, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        assert go_on.wait(600)
        return "slow"

    planner.submit(lambda: "quick")
    planner.submit(slow)
    assert began.wait(600)
    assert not planner.wait(0)
    assert not planner.wait(1e-3)
    assert planner.collect() == ["quick"]
    assert planner.collect() == []
    assert planner.busy
    go_on.set()
    assert planner.wait(None)
    assert planner.collect() == ["slow"]


# -------------------------------------------------------------------------------------------------- the outcome thread


class Outcomes:
    """What a core's signal does: True for each outcome, False once closed."""

    def __init__(self) -> None:
        self.queue: queue.Queue[bool] = queue.Queue()
        self.closed = threading.Event()

    def wait(self) -> bool:
        return self.queue.get(timeout=600)

    def close(self) -> None:
        self.closed.set()
        self.queue.put(False)


class Owner:
    """Counts its calls."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.called = threading.Semaphore(0)

    def collect(self) -> float:
        self.threads.append(threading.get_ident())
        self.called.release()
        return 0.0


@pytest.fixture
def outcomes() -> Iterator[Outcomes]:
    outcomes = Outcomes()
    yield outcomes
    outcomes.close()


def test_the_thread_keeps_no_owner_alive_and_ends_with_it(outcomes: Outcomes) -> None:
    owner = Owner()
    thread = start_outcome_thread(outcomes.wait, outcomes.close, owner.collect)
    outcomes.queue.put(True)
    assert owner.called.acquire(timeout=600)
    gone = weakref.ref(owner)
    del owner
    for _ in range(600):  # the thread may hold it until its call has returned
        gc.collect()
        if outcomes.closed.wait(0.1):
            break
    assert gone() is None
    thread.join(600)
    assert not thread.is_alive()


def test_an_outcome_without_an_owner_is_dropped(outcomes: Outcomes) -> None:
    owner = Owner()
    thread = start_outcome_thread(outcomes.wait, lambda: None, owner.collect)  # nobody ends the wait
    del owner
    gc.collect()
    outcomes.queue.put(True)
    thread.join(600)
    assert not thread.is_alive()
