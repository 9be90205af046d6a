"""Every transition of a lane's policy, as a table; then what decides between them: repetition, proof, patience."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.allocator.lane_policy import (
    LONGEST_ROTATION,
    UNPROVEN,
    WATCH,
    Confirm,
    Evidence,
    LanePolicy,
    Order,
    WarmUp,
)

BEFORE, STEP = "the record before", "the step"
CONFIRM = Confirm(STEP)

AGAIN, ANOTHER = Order(1, Evidence.REPEATED), Order(1, Evidence.DIVERGED)

CLEAN = {"record": None, "clean": True, "revisions": 0}
LOGGED = {"record": STEP, "clean": True, "revisions": 0}  # clean, and its log was wanted
UNPLANNED = {"record": STEP, "clean": False}
DEPARTED = {"record": STEP, "clean": False, "revisions": 0}
FAILED = {"record": STEP, "clean": False, "failed": True}
CUT = {"record": None, "clean": False}


def in_state(state: object, **options: Any) -> LanePolicy[str]:
    """Bring a lane to a state, by the shortest way."""
    policy: LanePolicy[str] = LanePolicy(state.left if isinstance(state, WarmUp) else 0, **options)
    if isinstance(state, Confirm):
        assert not policy.step_ended(state.record, clean=False)
    assert policy.state == state
    return policy


def next_record(policy: LanePolicy[str], number: int) -> bool:
    """Record a step where none is, then let another one follow it; return whether the record is planned."""
    if policy.record is None:
        assert not policy.step_ended(**UNPLANNED)
    return policy.step_ended(**UNPLANNED, confirms=Order(number, Evidence.DIVERGED))


# ---------------------------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize(
    ("state", "step", "confirms", "plans", "following"),
    [
        # Warm-up: steps count that could have been records.
        (WarmUp(2), UNPLANNED, None, False, WarmUp(1)),
        (WarmUp(2), DEPARTED, None, False, WarmUp(1)),
        (WarmUp(2), FAILED, None, False, WarmUp(2)),
        (WarmUp(2), CUT, None, False, WarmUp(2)),
        (WarmUp(1), UNPLANNED, None, False, WATCH),
        (WarmUp(1), CUT, None, False, WarmUp(1)),
        (WarmUp(2), CLEAN, None, False, WATCH),  # of a plan from a file
        # Watch: clean steps ask for nothing, the first other one that succeeds is a record.
        (WATCH, CLEAN, None, False, WATCH),
        (WATCH, LOGGED, None, False, WATCH),
        (WATCH, UNPLANNED, None, False, CONFIRM),
        (WATCH, DEPARTED, None, False, CONFIRM),
        (WATCH, FAILED, None, False, WATCH),
        (WATCH, CUT, None, False, WATCH),
        # Confirm: any complete step does it; it is the next record unless it is the same step again, or has failed.
        (Confirm(BEFORE), UNPLANNED, AGAIN, True, WATCH),
        (Confirm(BEFORE), DEPARTED, AGAIN, True, WATCH),
        (Confirm(BEFORE), UNPLANNED, ANOTHER, True, CONFIRM),
        (Confirm(BEFORE), DEPARTED, ANOTHER, True, CONFIRM),
        (Confirm(BEFORE), FAILED, ANOTHER, True, WATCH),
        (Confirm(BEFORE), LOGGED, ANOTHER, True, WATCH),
        (Confirm(BEFORE), CUT, None, False, WATCH),
    ],
)
def test_a_step_leads_from_state_to_state(
    state: object, step: dict[str, Any], confirms: Order | None, plans: bool, following: object
) -> None:
    policy = in_state(state)
    assert policy.step_ended(**step, confirms=confirms) is plans
    assert policy.state == following
    assert policy.record == (STEP if following == CONFIRM else None)


# --------------------------------------------------------------------------------------------------------------- logs


def test_where_steps_overlap_one_clean_step_is_recorded() -> None:
    policy = in_state(WATCH)
    policy.plan_taken_up(overlaps=True)
    for _ in range(LONGEST_ROTATION - 1):
        assert not policy.wants_log(has_plan=True)
        assert not policy.step_ended(**CLEAN)
    assert policy.wants_log(has_plan=True)
    assert not policy.step_ended(**CLEAN)
    assert policy.state == WATCH  # it has no log yet
    assert not policy.step_ended(**LOGGED)
    assert policy.state == CONFIRM
    assert policy.step_ended(**LOGGED, confirms=AGAIN)
    assert not policy.wants_log(has_plan=True)
    assert not policy.step_ended(**LOGGED)
    assert policy.state == WATCH  # once


# -------------------------------------------------------------------------------------------- what becomes of records


def test_a_record_whose_plan_is_being_made_is_not_planned_again() -> None:
    policy = in_state(WATCH)
    assert next_record(policy, 1)
    assert not next_record(policy, 1)
    policy.plan_made(1)
    assert next_record(policy, 1)
    policy.orders_lost()
    assert next_record(policy, 1)


def unproven() -> LanePolicy[str]:
    """Bring a lane to where plans have been made, of records 0 and up, that no step was replayed from."""
    policy = in_state(WATCH)
    for number in range(UNPROVEN):
        assert next_record(policy, number)
        policy.plan_made(number)
    return policy


@pytest.mark.parametrize(("revisions", "proves"), [(0, True), (None, False)])
def test_a_step_replayed_in_full_from_a_plan_in_use_is_proof(revisions: int | None, proves: bool) -> None:
    policy = unproven()
    assert not policy.step_ended(None, clean=True, revisions=revisions)
    assert next_record(policy, 9) is proves


# -------------------------------------------------------------------------------------------- what stands in the way


def test_one_that_is_placed_again_and_again_is_given_more_steps() -> None:
    policy = in_state(WATCH)
    placed = []
    for step in range(1, 40):
        policy.step_ended(**DEPARTED)
        policy.state = WATCH
        if policy.orders(Order(step, Evidence.OBSTRUCTED), 3):
            placed.append(step)
    assert placed == [8, 16, 24, 32]
