"""Jobs of the planner: what they know, entries of what was made, and that they never raise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stowplan.allocator.cache import Entry, PlanCache
from stowplan.allocator.plan_maker import PlanMaker, Record
from stowplan.planning import making
from stowplan.planning.co_placement import NO_RANGES
from stowplan.planning.shared import SharedPlans
from stowplan.profiler import ALLOCATE, FREE, StepLog
from stowplan.profiler.events import EVENT_DTYPE

SEQUENCE = 42


class Memory:
    """A pool of one lane."""

    taken = NO_RANGES
    grows_in_place = True
    bottom_last = False

    def arena_bytes(self, lane: int) -> int:
        return 1000

    def stayers(self, lane: int) -> np.ndarray:
        return self.taken


class Bench:
    """A plan maker and its cache."""

    def __init__(self, memory: Memory | None = None, solver: str = "auto") -> None:
        self.cache = PlanCache(4)
        memory = memory or Memory()
        self.maker = PlanMaker(memory, 0, self.cache, SharedPlans(4), alignment=64, solver=solver)

    def solved(self, log: StepLog, departed_from: Entry | None = None) -> Any:
        record = Record("train", log, departed_from)
        return self.maker.solving(SEQUENCE, record, log)()


def loop(iterations: int, size: int = 64) -> StepLog:
    """A loop that keeps a block of every iteration, and has one that it does not keep."""
    log = np.zeros(4 * iterations, dtype=EVENT_DTYPE)
    forth, back = log[: 3 * iterations], log[3 * iterations :]
    number = np.arange(iterations)
    for at, kind, sizes, request in (
        (0, ALLOCATE, 5000, 2 * number),
        (1, ALLOCATE, size, 2 * number + 1),
        (2, FREE, 0, 2 * number + 1),
    ):
        forth["kind"][at::3], forth["size"][at::3], forth["request"][at::3] = kind, sizes, request
    back["kind"], back["request"] = FREE, 2 * number[::-1]
    return StepLog(log)


def test_a_record_becomes_an_entry_under_its_key() -> None:
    bench = Bench()
    solved = bench.solved(loop(5))
    assert (solved.sequence, solved.replaces) == (SEQUENCE, None)
    assert (solved.entry.key, len(solved.entry.plan.profile)) == ("train", 10)


def test_a_successor_says_whose_place_it_takes() -> None:
    bench = Bench()
    old = bench.solved(loop(5)).entry
    bench.cache.add(old)
    solved = bench.solved(loop(5, size=640), departed_from=old)
    assert solved.replaces is old
    assert solved.entry.tag != old.tag


def test_a_record_that_teaches_nothing_leaves_the_entry_in_its_own_place() -> None:
    bench = Bench()
    old = bench.solved(loop(5)).entry
    bench.cache.add(old)
    solved = bench.solved(loop(5), departed_from=old)
    assert solved.entry is solved.replaces is old


def test_what_is_known_is_what_was_known_when_the_job_was_submitted() -> None:
    bench = Bench()
    record = Record("train", loop(5), None)
    late, later = (bench.maker.solving(SEQUENCE, record, loop(5)) for _ in range(2))
    bench.cache.add(late().entry)
    assert later().entry is not None
    assert bench.solved(loop(5)).entry is None  # it is planned by now


def test_whatever_fails_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(making, "plan_record", fail)
    solved = Bench().solved(loop(5))
    assert (solved.sequence, solved.entry, solved.replaces) == (SEQUENCE, None, None)


# ------------------------------------------------------------------------------------------------------- stayers


def placed_anew(taken: list[tuple[int, int]], *, grows: bool, arena_bytes: int | None = None) -> Any:
    memory = Memory()
    memory.grows_in_place = grows
    bench = Bench(memory)
    old = bench.solved(loop(2, size=5000)).entry  # three blocks of 5056 bytes are alive at a time
    bench.cache.add(old)
    if arena_bytes is not None:
        memory.arena_bytes = lambda lane: arena_bytes  # type: ignore[method-assign]
    solved = bench.maker.placing_anew(SEQUENCE, old, np.array(taken, dtype=np.int64))()
    assert solved.replaces is old
    return solved, old


@pytest.mark.parametrize("grows", [False, True])
def test_a_plan_is_placed_around_what_stays(grows: bool) -> None:
    solved, old = placed_anew([(5056, 5120)], grows=grows, arena_bytes=30_000)
    assert solved.entry is not old
    assert (old.plan.arena_bytes, solved.entry.plan.arena_bytes) == (3 * 5056, 3 * 5056 + 64)
    begin = solved.entry.plan.placement.offsets
    assert ((begin >= 5120) | (begin + solved.entry.plan.problem.size <= 5056)).all()


def test_an_arena_that_cannot_grow_is_left_to_the_plan_and_what_stays_if_little_is_obstructed() -> None:
    solved, old = placed_anew([(5056, 5120)], grows=False, arena_bytes=3 * 5056)
    assert (solved.entry, solved.arena_bytes) == (old, 0)


def test_another_arena_takes_its_place_if_most_is() -> None:
    solved, old = placed_anew([(0, 64), (5056, 5120), (10112, 10176)], grows=False, arena_bytes=3 * 5056)
    assert solved.entry is old
    assert solved.arena_bytes > 3 * 5056
