"""What becomes of a record: a first plan, a successor, a variant, or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stowplan.errors import UnknownSolverError
from stowplan.planning import Plan, make_plan
from stowplan.planning.making import Made, Options, Task, plan_record
from stowplan.planning.shared import SharedPlans

from .logs import log, profile

STEP = "640 1280 -0 320 -1 -2"
LARGER = "640 1920 -0 192 -1 -2"
SMALLER = "640 1280 -0 192 -1 -2"
OTHER_FREES = "640 1280 320 -0 -1 -2"
ANOTHER = "640 64 -0 -1"
KEPT_UNTIL_THE_NEXT = (
    "640 1280 ~0 -1"  # request 0 is freed in the next step, after its successor was asked for
)
OPTIONS = Options(alignment=64)


def a_plan(text: str) -> Plan:
    return make_plan(profile(text), alignment=64)


def made(task: Task, options: Options = OPTIONS) -> Made:
    return plan_record(task, SharedPlans(4), options)


def repeated(text: str, **known: object) -> Task:
    return replace(Task(log(text), log(text)), **known)  # type: ignore[arg-type]


def test_a_first_record_becomes_a_plan() -> None:
    result = made(repeated(STEP))
    assert result.plan is not None
    assert result.replaces is None
    assert result.plan.profile.same_blocks(profile(STEP))
    assert result.plan.problem.size.tolist() == [640, 1280, 320]
    assert result.plan.steps == 1


@pytest.mark.parametrize(("record", "sizes"), [(LARGER, [640, 1920, 320]), (OTHER_FREES, [640, 1280, 320])])
def test_larger_sizes_or_other_frees_succeed_the_plan(record: str, sizes: list[int]) -> None:
    old = a_plan(STEP)
    result = made(repeated(record, departed_from=old, variants=[old], neighbours=[old]))
    assert result.replaces is old
    assert result.plan is not None
    assert result.plan.profile.size.tolist() == sizes


@pytest.mark.parametrize("record", [STEP, SMALLER])
def test_a_record_that_the_plan_holds_already_teaches_nothing(record: str) -> None:
    old = a_plan(STEP)
    result = made(repeated(record, departed_from=old, variants=[old], neighbours=[old]))
    assert result.plan is result.replaces is old


def test_another_structure_is_a_variant() -> None:
    old = a_plan(STEP)
    result = made(repeated(ANOTHER, departed_from=old, variants=[old], neighbours=[old]))
    assert result.plan is not None
    assert result.replaces is None
    assert result.plan.profile.same_blocks(profile(ANOTHER))


def test_what_another_variant_stands_for_is_not_planned_again() -> None:
    old, other = a_plan(STEP), a_plan(ANOTHER)
    result = made(repeated(ANOTHER, departed_from=old, variants=[old, other], neighbours=[old, other]))
    assert (result.plan, result.replaces) == (None, None)


def test_a_step_that_overlaps_its_successor_is_planned_with_it() -> None:
    result = made(repeated(KEPT_UNTIL_THE_NEXT))
    assert result.plan is not None
    assert result.plan.profile.size.tolist() == 2 * [640, 1280]
    assert result.plan.steps == 2
    assert not result.plan.profile.escaped.any()


def test_two_steps_in_turn_succeed_the_plan_of_one() -> None:
    old = make_plan(profile(KEPT_UNTIL_THE_NEXT), alignment=64)
    result = made(repeated(KEPT_UNTIL_THE_NEXT, departed_from=old, variants=[old], neighbours=[old]))
    assert result.replaces is old
    assert result.plan is not None
    assert result.plan.steps == 2
    again = made(repeated(KEPT_UNTIL_THE_NEXT, variants=[result.plan]))
    assert again.plan is None


def test_a_variant_that_no_step_can_tell_from_the_plan_takes_its_place() -> None:
    old, better = (
        a_plan("640 1280 -1"),
        a_plan("640 1280 -0 -1"),
    )  # of the same requests; the first leaves one out
    task = repeated("640 1280 -0 -1", departed_from=old, variants=[old, better], neighbours=[old, better])
    result = made(task)
    assert result.plan is better
    assert result.replaces is old


@pytest.mark.parametrize("doubted", [True, False])
def test_frees_that_a_record_of_steps_in_turn_lacks_are_believed_to_come_again(doubted: bool) -> None:
    old = made(repeated(KEPT_UNTIL_THE_NEXT)).plan
    assert old is not None
    lost = "640 1280 -1"  # as after another step: the free of the block from before it is not known
    task = repeated(lost, departed_from=old, variants=[old], neighbours=[old], doubted=doubted)
    result = made(task)
    assert result.replaces is old
    assert result.plan is not None
    assert (result.plan is old) == doubted
    assert result.plan.profile.escaped.any() != doubted


def test_a_plan_is_placed_beside_the_others_but_not_beside_the_one_it_replaces() -> None:
    other, old = a_plan("~0 640 1280 -1"), a_plan("~0 6400 64 -1")
    assert len(other.residents) == len(old.residents) == 1
    task = repeated("~0 6400 128 -1", departed_from=old, neighbours=[other, old], arena_bytes=1 << 20)
    result = made(task)
    assert result.replaces is old
    assert result.plan is not None
    alone = made(replace(task, neighbours=[other])).plan
    assert alone is not None
    assert result.plan.offset.tolist() == alone.offset.tolist()
    (begin, end), *_ = other.residents.tolist()
    ranges = [(offset, offset + size) for offset, size in zip(result.plan.offset, [6400, 128], strict=True)]
    assert all(high <= begin or low >= end for low, high in ranges)


def test_equal_tasks_have_one_plan() -> None:
    shared = SharedPlans(4)
    first, second = (plan_record(repeated(STEP), shared, OPTIONS) for _ in range(2))
    assert first.plan is second.plan is not None
    wider = plan_record(repeated(STEP, arena_bytes=64), shared, OPTIONS)
    assert wider.plan is first.plan  # nobody is beside it: the arena's size makes no difference


def test_it_steps_aside_between_the_pieces() -> None:
    calls: list[int] = []
    made(repeated(STEP), Options(64, step_aside=lambda: calls.append(1)))
    assert len(calls) == 4


def test_a_solver_that_fails_is_an_error() -> None:
    with pytest.raises(UnknownSolverError, match="nobody"):
        made(repeated(STEP), Options(64, solver="nobody"))
