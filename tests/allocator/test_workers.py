"""The planner's thread: jobs in their order, results once."""

from __future__ import annotations

import threading
import time

from stowplan.allocator.workers import Planner


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
    go_on.set()
    assert planner.wait(None)
    assert planner.collect() == ["slow"]
