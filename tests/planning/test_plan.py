"""From a profile to a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stowplan.planning import UNPLANNED, make_plan, problem_of
from stowplan.profiler import ESCAPED, Profile


def test_sizes_are_rounded_up_and_never_zero() -> None:
    problem, rows = problem_of(Profile([0, 1, 64, 65], [0, 1, 2, 3], [4, 5, 6, 7], period=8), 64)
    assert problem.size.tolist() == [64, 64, 64, 128]
    assert rows.tolist() == [0, 1, 2, 3]


def test_escaped_blocks_and_other_streams_are_not_planned() -> None:
    _, rows = problem_of(
        Profile([1, 2, 3, 900], [0, 1, 2, 3], [4, ESCAPED, 5, 6], period=7, stream=[5] * 4), 1
    )
    assert rows.tolist() == [0, 2, 3]
    _, rows = problem_of(Profile([1, 2, 3, 900], [0, 1, 2, 3], [4, 5, 6, 7], period=8, stream=[5, 9] * 2), 1)
    assert rows.tolist() == [1, 3]


def test_the_planned_peak_is_of_what_the_plan_places(tmp_path: Path) -> None:
    two_streams = Profile([10, 20, 900], [0, 1, 2], [3, 4, 5], period=6, stream=[5, 5, 9])
    assert two_streams.planned_peak == make_plan(two_streams, alignment=1).arena_bytes == 900
    assert replace(two_streams, alive=[10, 30, 930]).at_live_peak() == (2, 30, 0, 900)
    two_streams.to_csv(tmp_path / "step.csv")
    assert Profile.from_csv(tmp_path / "step.csv").size.tolist() == [900]


def test_an_empty_profile() -> None:
    plan = make_plan(Profile([], [], [], period=0), alignment=64)
    assert (plan.arena_bytes, len(plan.rows), plan.residents.shape) == (0, 0, (0, 2))
    assert plan.offset.shape == (0,)


def test_blocks_that_are_not_planned_have_no_offset() -> None:
    plan = make_plan(Profile([1, 2, 3], [0, 1, 2], [3, ESCAPED, 4], period=5), alignment=1)
    assert plan.offset[1] == UNPLANNED
    assert plan.offset[plan.rows].tolist() == plan.placement.offsets.tolist()
