"""One lane: a step's log becomes a job, its result a plan in use; whatever fails makes nothing."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from stowplan.allocator import lane
from stowplan.allocator._core import LaneStart, StepOutcome
from stowplan.allocator.lane import Lane
from stowplan.allocator.options import PlanningOptions
from stowplan.allocator.planning_budget import Planning, PlanningBudget
from stowplan.planning.co_placement import NO_RANGES
from stowplan.planning.shared import SharedPlans

from ..planning.logs import log

STEP, LARGER, ANOTHER = "640 1280 -0 320 -1 -2", "640 1920 -0 192 -1 -2", "5000 64 -0 -1"


class Memory:
    """A pool of one lane, which has so much memory for its arena."""

    grows_in_place = True
    bottom_last = False
    taken = NO_RANGES

    def __init__(self, most: int = 1 << 30) -> None:
        self.most = most
        self.expected: list[tuple[LaneStart, bool]] = []

    def arena_bytes(self, lane: int) -> int:
        return 1 << 20

    def stayers(self, lane: int) -> np.ndarray:
        return self.taken

    def reserve(self, lane: int, size: int) -> bool:
        return size <= self.most

    def expect(self, start: LaneStart, wanted: bool) -> None:
        self.expected.append((start, wanted))


class Bench:
    """A lane, whose plans are ready when the next step begins."""

    def __init__(self, memory: Memory | None = None, **options: Any) -> None:
        self.planning = Planning(64, "auto", 4, SharedPlans(4), PlanningBudget(math.inf))
        self.memory = memory or Memory()
        self.lane = self.another(**options)
        self.tag = 0

    def another(self, **options: Any) -> Lane:
        memory: Any = self.memory
        return Lane(memory, 0, self.planning, PlanningOptions(**{"warmup": 0, **options}))

    def step(
        self,
        text: str,
        key: Hashable = "train",
        *,
        clean: bool = False,
        follows: bool = False,
        **options: Any,
    ) -> LaneStart:
        """Run a step, which follows the plan made last or none, and return how it began."""
        assert self.lane.wait(600)
        start = self.lane.next_step(key, options.pop("keeps_results", False))
        tag = self.lane.in_use()[-1].tag if follows else 0
        self.lane.step_ended(
            StepOutcome(log(text).events, not clean, clean, tag), options.pop("failed", False)
        )
        return start


def test_a_record_becomes_a_plan_in_use_under_its_key() -> None:
    bench = Bench()
    assert bench.step(STEP).plan is None
    assert bench.step(STEP).plan is None
    start = bench.step(STEP, clean=True, follows=False)
    (used,) = bench.lane.in_use()
    assert start.plan is used.core
    assert start.arena_bytes == used.plan.arena_bytes
    assert (used.key, len(used.plan.profile), bench.lane.latest) == ("train", 3, used.plan)
    assert (bench.lane.plans, bench.lane.reoptimizations) == (1, 0)
    assert bench.lane.next_step("eval").plan is None


def test_a_record_that_teaches_nothing_revises_its_plan() -> None:
    bench = Bench()
    for _ in range(3):
        bench.step(STEP)
    (old,) = bench.lane.in_use()
    for _ in range(3):  # the first confirms a record that departed from no plan
        bench.step(STEP, follows=True)
    assert bench.lane.wait(600)
    bench.lane.take_up()
    assert bench.lane.in_use() == [old]
    assert (old.revisions, bench.lane.plans) == (1, 1)


def test_the_plan_that_came_next_the_last_time_is_expected() -> None:
    bench = Bench()
    for text in (STEP, ANOTHER, ANOTHER):
        bench.step(text)
    assert bench.lane.wait(600)
    bench.lane.take_up()
    one, other = bench.lane.in_use()
    for used in (other, one, other):
        bench.lane.next_step("train")
        bench.lane.step_ended(StepOutcome(log("").events, False, True, used.tag), failed=False)
    assert bench.lane.next_step("train").plan is one.core


def test_a_plan_that_has_no_memory_for_its_arena_is_not_used() -> None:
    bench = Bench(Memory(most=1000))
    for _ in range(4):
        assert bench.step(STEP).plan is None
    assert bench.lane.in_use() == []


def test_whatever_fails_makes_nothing_and_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError

    bench = Bench()
    with monkeypatch.context() as patch:
        patch.setattr(lane, "plan_record", fail)
        bench.step(STEP)
        bench.step(STEP)
        assert bench.step(STEP).plan is None
    bench.step(STEP)
    assert bench.step(STEP).plan is not None


def test_an_obstructed_plan_is_placed_around_what_stays() -> None:
    bench = Bench()
    for _ in range(3):
        bench.step(STEP)
    (old,) = bench.lane.in_use()
    bench.memory.taken = np.array([[0, 64]])
    bench.step(STEP, follows=True)
    assert bench.lane.wait(600)
    bench.lane.take_up()
    (new,) = bench.lane.in_use()
    assert new.plan.profile is old.plan.profile
    assert new.plan.placement.offsets.min() >= 64
    assert new.revisions == 1


def test_what_keeps_its_results_is_offered_to_other_lanes() -> None:
    bench = Bench()
    for _ in range(3):
        start = bench.step(STEP, keeps_results=True)
    assert not start.guests
    assert start.plan is not None
    other = bench.another()
    assert other.next_step("train").plan is None  # it does not keep its own
    assert other.next_step("train", keeps_results=True).plan is not None
    assert [used.plan for used in other.in_use()] == [used.plan for used in bench.lane.in_use()]
    assert other.plans == 0


def test_steps_that_are_found_are_told_what_to_expect() -> None:
    bench = Bench(auto_step=True, warmup=9)
    outcome = StepOutcome(log(STEP).events, True, False, 0)
    bench.lane.steps_found([outcome, outcome])
    start, wanted = bench.memory.expected.pop()
    assert (start.plan, wanted) == (None, True)
    assert bench.lane.wait(600)
    bench.lane.take_up()
    start, wanted = bench.memory.expected.pop()
    assert start.plan is not None
    assert not wanted
    bench.lane.next_step("train")
    bench.lane.steps_found([outcome])  # a marked step has ended this
    assert bench.memory.expected == []


def test_what_a_fork_leaves_behind_can_be_ordered_again() -> None:
    bench = Bench()
    bench.step(STEP)
    bench.step(STEP)
    bench.lane.planner_lost()
    assert bench.step(STEP).plan is None
    bench.step(STEP)
    assert bench.step(STEP).plan is not None
