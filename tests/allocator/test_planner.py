"""The planner's thread: jobs in their order, results once, waits that end in time."""

from __future__ import annotations

import threading
import time

from stowplan.allocator.planner import Planner


def test_results_come_once_and_in_the_order_of_the_jobs() -> None:
    planner: Planner[int] = Planner()
    for number in range(20):
        planner.submit(lambda number=number: number)  # type: ignore[misc]
    assert planner.busy
    assert planner.wait(60)
    assert planner.busy  # the results are still there
    assert planner.collect() == list(range(20))
    assert not planner.busy
    assert planner.collect() == []


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
        assert number % 10 or planner.wait(60)  # the worker goes, and comes again
    assert planner.wait(60)
    threads = planner.collect()
    assert len(threads) == 50
    assert threading.get_ident() not in threads


def test_what_is_done_can_be_collected_while_the_rest_is_being_made() -> None:
    planner: Planner[str] = Planner()
    began, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        assert go_on.wait(60)
        return "slow"

    planner.submit(lambda: "quick")
    planner.submit(slow)
    assert began.wait(60)
    assert not planner.wait(0)
    assert not planner.wait(1e-3)
    assert planner.collect() == ["quick"]
    assert planner.collect() == []
    assert planner.busy
    go_on.set()
    assert planner.wait(None)
    assert planner.collect() == ["slow"]


def test_a_planner_without_jobs_is_ready_and_has_no_thread() -> None:
    before = threading.active_count()
    planner: Planner[int] = Planner()
    assert planner.wait(0)
    assert planner.wait(None)
    assert planner.collect() == []
    assert threading.active_count() == before
