"""What is said at the end of ``stowplan run``, for programs that a plan helps and for those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.scripts.step_usage import StepCost, StepUsage
from stowplan.scripts.verdict import judge, text

FIGURES: dict[str, Any] = {
    "requests": 1000,
    "replayed": 990,
    "with_a_plan": 990,
    "reasons": {"no_plan": 10},
    "steps": 100,
    "peak_reserved_bytes": 4 << 20,
    "peak_live_bytes": 3 << 20,
}


def cost(faults: float, cpu_seconds: float) -> StepCost:
    return StepCost(10, faults, cpu_seconds)


@pytest.mark.parametrize(
    ("changes", "before", "after", "helped", "why"),
    [
        ({}, cost(900, 0.010), cost(2, 0.005), True, "50% less CPU time"),
        ({}, cost(900, 0.010), cost(2, 0.0101), None, "did not change measurably"),
        ({}, cost(900, 0.010), cost(2, 0.012), False, "20% more CPU time"),
        ({}, cost(3, 0.010), cost(2, 0.012), False, "only 3 page faults"),
        ({}, None, cost(2, 0.012), None, "no whole step was seen without the plan"),
        ({"replayed": 0, "with_a_plan": 0}, None, None, False, "no step that repeats"),
        ({"requests": 0, "replayed": 0}, None, None, False, "no block that is large enough"),
        ({"replayed": 400, "reasons": {"late": 600}}, cost(900, 1), cost(2, 2), False, "outlived its plan"),
    ],
)
def test_verdicts(
    changes: dict[str, Any], before: StepCost | None, after: StepCost | None, helped: bool | None, why: str
) -> None:
    figures = {**FIGURES, **changes}
    verdict = judge(figures, before, after)
    assert (verdict.helped, why in verdict.why) == (helped, True), verdict
    assert verdict.advice or helped is not False
    lines = text("numpy", figures, verdict).splitlines()
    assert len(lines) == 2
    assert verdict.why in lines[1]
    assert ("page faults 900 -> 2" in lines[0]) == (before is not None and before.faults == 900)
    assert "4.0 MiB" in lines[0]
    assert set(verdict.as_dict()) == {"helped", "why", "advice", "before", "after"}


def test_steps_are_parted_by_the_first_replayed_request() -> None:
    progress = [(0, 0), (2, 0), (5, 0), (6, 3), (6, 4), (16, 40)]
    usage = StepUsage(iter(progress).__next__)
    for _, replayed in progress:
        assert usage.look() == (replayed > 0)
    assert usage.before is not None
    assert usage.after is not None
    assert (usage.before.steps, usage.after.steps) == (3, 10)
    assert min(usage.before.faults, usage.before.cpu_seconds, usage.after.faults) >= 0


def test_without_a_whole_step_there_is_no_cost() -> None:
    usage = StepUsage(lambda: (4, 0))
    usage.look()
    assert (usage.before, usage.after) == (None, None)
