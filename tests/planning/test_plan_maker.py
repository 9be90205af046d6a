"""What becomes of a record: a first plan, a successor, a variant, or nothing; and of a plan that is obstructed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from stowplan.errors import UnknownSolverError
from stowplan.packing import pack
from stowplan.planning import Plan, make_plan
from stowplan.planning.co_placement import NO_RANGES
from stowplan.planning.plan_dedup import SharedPlans
from stowplan.planning.plan_maker import Options, plan_record, replan_obstructed
from stowplan.planning.plan_messages import Arena, PlanJob, PlanResult, Verdict

from .logs import Used, log, profile

STEP = "640 1280 -0 320 -1 -2"
LARGER = "640 1920 -0 192 -1 -2"
SMALLER = "640 1280 -0 192 -1 -2"
OTHER_FREES = "640 1280 320 -0 -1 -2"
ANOTHER = "640 64 -0 -1"
KEPT_UNTIL_THE_NEXT = "640 1280 ~0 -1"
"""The next step frees request 0, after it has made its successor."""
OPTIONS = Options(alignment=64)


Result = PlanResult[Used]


def in_use(text: str) -> Used:
    return Used(make_plan(profile(text), alignment=64))


def made(job: PlanJob[Used], options: Options = OPTIONS) -> Result:
    return plan_record(job, SharedPlans(4), options)


def new(result: Result) -> Plan:
    """Return what was planned anew."""
    assert result.verdict is Verdict.PLAN
    assert isinstance(result.plan, Plan)
    return result.plan


def repeated(text: str, **known: object) -> PlanJob[Used]:
    return replace(PlanJob[Used](log(text), log(text)), **known)  # type: ignore[arg-type]


def departed(text: str, old: Used, *others: Used, **known: object) -> PlanJob[Used]:
    """Return the job of a record that departed from a plan."""
    return repeated(text, replaced=old, variants=[old, *others], neighbours=[old, *others], **known)


def kept(result: Result, old: Used | None) -> bool:
    """Whether nothing came of a job but that a plan stays."""
    return (result.verdict, result.plan, result.replaced) == (Verdict.KEEP, None, old)


@pytest.mark.parametrize(
    ("record", "succeeds", "sizes"),
    [
        (LARGER, True, [640, 1920, 320]),
        (OTHER_FREES, True, [640, 1280, 320]),
        (ANOTHER, False, [640, 64]),  # one more variant
        (STEP, True, None),  # the plan holds it already
        (SMALLER, True, None),
    ],
)
def test_what_becomes_of_a_record(record: str, succeeds: bool, sizes: list[int] | None) -> None:
    old = in_use(STEP)
    result = made(departed(record, old))
    assert result.replaced is (old if succeeds else None)
    if sizes is None:
        assert kept(result, old)
    else:
        assert new(result).profile.size.tolist() == sizes


def test_what_another_variant_stands_for_is_not_planned_again() -> None:
    assert kept(made(departed(ANOTHER, in_use(STEP), in_use(ANOTHER))), None)


def test_a_step_that_overlaps_its_successor_is_planned_with_it() -> None:
    plan = new(made(repeated(KEPT_UNTIL_THE_NEXT)))
    assert plan.profile.size.tolist() == 2 * [640, 1280]
    assert plan.steps == 2
    assert not plan.profile.escaped.any()


def test_two_steps_in_turn_succeed_the_plan_of_one() -> None:
    old = in_use(KEPT_UNTIL_THE_NEXT)
    result = made(departed(KEPT_UNTIL_THE_NEXT, old))
    assert result.replaced is old
    assert new(result).steps == 2
    both = Used(new(result))
    assert kept(made(repeated(KEPT_UNTIL_THE_NEXT, variants=[both])), None)
    assert kept(made(departed(KEPT_UNTIL_THE_NEXT, both)), both)


def test_a_variant_that_no_step_can_tell_apart_takes_the_place() -> None:
    # Profiles of the same requests; the first leaves one out.
    old, better = in_use("640 1280 -1"), in_use("640 1280 -0 -1")
    result = made(departed("640 1280 -0 -1", old, better))
    assert (result.verdict, result.plan, result.replaced) == (Verdict.PLAN, better, old)


@pytest.mark.parametrize("doubted", [True, False])
def test_frees_that_a_record_of_steps_in_turn_lacks_are_doubted(doubted: bool) -> None:
    old = Used(new(made(repeated(KEPT_UNTIL_THE_NEXT))))
    lost = "640 1280 -1"  # as after another step: the free of the block from before it is not known
    result = made(departed(lost, old, doubted=doubted))
    assert result.replaced is old
    assert kept(result, old) is doubted
    assert doubted or new(result).profile.escaped.any()


def test_equal_jobs_have_one_plan() -> None:
    shared = SharedPlans(4)
    first, second = (plan_record(repeated(STEP), shared, OPTIONS) for _ in range(2))
    assert new(first) is new(second)
    wider = plan_record(repeated(STEP, arena=Arena(64, NO_RANGES)), shared, OPTIONS)
    assert wider.plan is first.plan  # nothing is beside it: the arena's size makes no difference


def test_it_steps_aside_between_the_pieces() -> None:
    calls: list[int] = []
    made(repeated(STEP), Options(64, step_aside=lambda: calls.append(1)))
    assert len(calls) == 4


def test_a_solver_that_fails_is_an_error() -> None:
    with pytest.raises(UnknownSolverError, match="nobody"):
        made(repeated(STEP), Options(64, partial(pack, solver="nobody")))


# ------------------------------------------------------------------------------------------------------- occupied

THREE_ALIVE = "5000 5000 5000 -2 -1 -0"
"""Three blocks of 5056 bytes are alive at a time."""


def anew(occupied: list[tuple[int, int]], reserved: int, *, grows: bool) -> tuple[Result, Used]:
    old = in_use(THREE_ALIVE)
    assert old.plan.arena_bytes == 3 * 5056
    return replan_obstructed(old, [], Arena(reserved, np.array(occupied), grows), OPTIONS), old


@pytest.mark.parametrize("grows", [False, True])
def test_a_plan_is_placed_around_what_stays(grows: bool) -> None:
    result, old = anew([(5056, 5120)], 30_000, grows=grows)
    assert result.replaced is old
    plan = new(result)
    assert plan.arena_bytes == 3 * 5056 + 64
    begin = plan.placement.offsets
    assert ((begin >= 5120) | (begin + plan.problem.size <= 5056)).all()


def test_an_arena_that_cannot_grow_stays_if_little_is_obstructed() -> None:
    result, old = anew([(5056, 5120)], 3 * 5056, grows=False)
    assert kept(result, old)


def test_another_arena_takes_its_place_if_most_is_obstructed() -> None:
    result, old = anew([(0, 64), (5056, 5120), (10112, 10176)], 3 * 5056, grows=False)
    assert (result.verdict, result.replaced, result.plan) == (Verdict.GROW, old, None)
    assert result.arena_bytes > 3 * 5056
