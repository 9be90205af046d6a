"""One lane, alone: which plan it expects, and which steps it hears of. What becomes of its records: tests/golden."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stowplan.allocator._core import LaneStart, StepOutcome
from stowplan.allocator.lane import Lane
from stowplan.allocator.options import PlanningOptions
from stowplan.allocator.planning_budget import Planning, PlanningBudget
from stowplan.planning.co_placement import NO_RANGES
from stowplan.planning.shared import SharedPlans

from ..planning.logs import log

STEP, ANOTHER = "640 1280 -0 320 -1 -2", "5000 64 -0 -1"


class Memory:
    """A pool of one lane."""

    grows_in_place = True
    bottom_last = False

    def __init__(self) -> None:
        self.expected: list[tuple[LaneStart, bool]] = []

    def arena_bytes(self, lane: int) -> int:
        return 1 << 20

    def stayers(self, lane: int) -> np.ndarray:
        return NO_RANGES

    def reserve(self, lane: int, size: int) -> bool:
        return True

    def expect(self, start: LaneStart, wanted: bool) -> None:
        self.expected.append((start, wanted))


class Bench:
    """A lane, whose plans are ready when the next step begins."""

    def __init__(self, **options: Any) -> None:
        planning = Planning(64, "auto", 4, SharedPlans(4), PlanningBudget(math.inf))
        self.memory: Any = Memory()
        self.lane = Lane(self.memory, 0, planning, PlanningOptions(**{"warmup": 0, **options}))

    def step(self, text: str) -> LaneStart:
        """Run a step that follows no plan, and return how it began."""
        assert self.lane.wait(600)
        start = self.lane.next_step("train")
        self.lane.step_ended(StepOutcome(log(text).events, True, False, 0), failed=False)
        return start


def test_the_plan_that_came_next_the_last_time_is_expected() -> None:
    bench = Bench()
    for text in (STEP, ANOTHER, ANOTHER):
        bench.step(text)
    assert bench.lane.wait(600)
    bench.lane.take_up()
    one, other = bench.lane.held
    for used in (other, one, other):
        bench.lane.next_step("train")
        bench.lane.step_ended(StepOutcome(log("").events, False, True, used.tag), failed=False)
    assert bench.lane.next_step("train").plan is one.core


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
