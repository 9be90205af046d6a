"""Plans that several lanes need: made once, failed for all, forgotten in a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from stowplan import Profile
from stowplan.planning import Plan, make_plan
from stowplan.planning.plan_dedup import SharedPlans, contents


def a_plan() -> Plan:
    return make_plan(Profile(np.array([100]), np.array([0]), np.array([1]), period=2), alignment=64)


def in_threads(work: Callable[[], Plan]) -> list[Future[Plan]]:
    with ThreadPoolExecutor(4) as pool:
        return [pool.submit(work) for _ in range(4)]


def test_plans_beyond_their_bytes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stowplan.planning.plan_dedup.MOST_BYTES", 3 * a_plan().nbytes)
    shared = SharedPlans(100)
    for number in range(10):
        shared.find(number, a_plan)
    assert len(shared.plans()) == 3
    for number in range(10):
        shared.offer(number, a_plan())
    assert sum(plan.nbytes for plan in shared.plans()) <= 3 * a_plan().nbytes
    assert shared.offers(9)


def test_the_first_makes_it_and_the_others_wait() -> None:
    shared, meet, calls = SharedPlans(2), threading.Barrier(4), []

    def make() -> Plan:
        calls.append(threading.get_ident())
        return a_plan()

    def ask() -> Plan:
        meet.wait(600)
        return shared.find("it", make)

    plans = {future.result() for future in in_threads(ask)}
    assert len(calls) == len(plans) == 1


def test_a_plan_that_fails_fails_for_all_and_is_tried_again() -> None:
    shared, waiting = SharedPlans(2), threading.Event()

    def fail() -> Plan:
        waiting.wait(600)
        raise MemoryError("none")

    threading.Timer(0.05, waiting.set).start()
    for future in in_threads(lambda: shared.find("it", fail)):
        assert isinstance(future.exception(), MemoryError)
    assert shared.find("it", a_plan).arena_bytes == 128


def test_what_another_process_was_making_is_not_waited_for() -> None:
    shared, go_on = SharedPlans(2), threading.Event()

    def slowly() -> Plan:
        go_on.wait(600)
        return a_plan()

    left_behind = threading.Thread(target=shared.find, args=("it", slowly))
    left_behind.start()
    shared.reset_after_fork()
    own = shared.find("it", a_plan)
    go_on.set()
    left_behind.join(600)
    assert shared.find("it", a_plan) is own


@pytest.mark.parametrize("column", ["size", "start", "end", "stream", "period"])
def test_steps_that_differ_in_one_number_are_told_apart(column: str) -> None:
    columns = {"size": [1, 2], "start": [0, 1], "end": [3, 4], "stream": [0, 0]}
    period = 6
    before = contents(Profile(**{name: np.array(values) for name, values in columns.items()}, period=period))
    if column == "period":
        period += 1
    else:
        columns[column][1] += 1
    after = contents(Profile(**{name: np.array(values) for name, values in columns.items()}, period=period))
    assert before != after
