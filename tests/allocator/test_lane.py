"""One lane, alone: planning that fails. What becomes of its records: tests/golden."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stowplan.allocator import lane as lanes
from stowplan.allocator._core import LaneStart, StepOutcome
from stowplan.allocator.lane import Lane
from stowplan.allocator.options import PlanningOptions
from stowplan.allocator.planning_budget import Planning, PlanningBudget
from stowplan.planning.co_placement import NO_RANGES
from stowplan.planning.shared import SharedPlans

from ..planning.logs import log


class Memory:
    """A pool of one lane."""

    grows_in_place = True
    bottom_last = False

    def arena_bytes(self, lane: int) -> int:
        return 1 << 20

    def stayers(self, lane: int) -> np.ndarray:
        return NO_RANGES

    def reserve(self, lane: int, size: int) -> bool:
        return True


STEP = "640 1280 -0 320 -1 -2"


def lane_of(memory: Any, **options: Any) -> Lane:
    planning = Planning(64, "auto", 4, SharedPlans(4), PlanningBudget(math.inf))
    return Lane(memory, 0, planning, PlanningOptions(**{"warmup": 0, **options}))


def step(lane: Lane) -> LaneStart:
    """Run a step, with all plans ready when it begins; return how it began."""
    assert lane.wait(600)
    start = lane.next_step("train")
    lane.step_ended(StepOutcome(log(STEP).events, True, False, 0), failed=False)
    return start


def test_a_failure_makes_nothing_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError

    lane = lane_of(Memory())
    with monkeypatch.context() as patch:
        patch.setattr(lanes, "plan_record", fail)
        step(lane)
        step(lane)
        assert step(lane).plan is None
    step(lane)
    assert step(lane).plan is not None


def test_what_a_fork_leaves_behind_can_be_ordered_again() -> None:
    lane = lane_of(Memory())
    step(lane)
    step(lane)
    lane.planner_lost()
    assert step(lane).plan is None
    step(lane)
    assert step(lane).plan is not None
