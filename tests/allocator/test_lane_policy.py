"""Every transition of a lane's policy, as a table; then what decides between them: repetition, proof, patience."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.allocator.lane_policy import (
    LONGEST_BACK_OFF,
    LONGEST_ROTATION,
    REMEMBERED,
    UNPROVEN,
    Action,
    Confirmation,
    Decision,
    LanePolicy,
    Phase,
    Standing,
)

PLAN = Standing()
AGAIN = Confirmation(sequence=1, equal=True, same_key=True)
ANOTHER = Confirmation(sequence=1, equal=False, same_key=True)

CLEAN = {"complete": False, "clean": True, "followed": PLAN}
LOGGED = {"complete": True, "clean": True, "followed": PLAN}  # clean, and its log was wanted
UNPLANNED = {"complete": True, "clean": False}
DEPARTED = {"complete": True, "clean": False, "followed": PLAN}
FAILED = {"complete": True, "clean": False, "failed": True}
CUT = {"complete": False, "clean": False}

NOTHING, RECORD = Decision(), Decision(record=True)


def in_phase(phase: Phase, **options: Any) -> LanePolicy:
    """Bring a lane to a phase, by the shortest way; a warm-up has two steps left."""
    if phase is Phase.WARM_UP:
        return LanePolicy(2, **options)
    policy = LanePolicy(0, **options)
    if phase in (Phase.CONFIRM, Phase.REPLAY, Phase.OBSERVE):
        assert policy.step_ended(**UNPLANNED) == RECORD
    if phase in (Phase.REPLAY, Phase.OBSERVE):
        order(policy, sequence=0)
        policy.plan_made(0)
        policy.plan_taken_up(overlaps=False)
    if phase is Phase.OBSERVE:
        assert policy.step_ended(**DEPARTED) == RECORD
    assert policy.phase is phase
    return policy


def order(policy: LanePolicy, sequence: int) -> None:
    """Have the record planned, which the same step confirms."""
    confirmation = Confirmation(sequence, equal=True, same_key=True)
    assert policy.step_ended(**UNPLANNED, confirmation=confirmation) == Decision(Action.PLAN)


def next_record(policy: LanePolicy, sequence: int, **confirmation: Any) -> Action:
    """Record a step where none is, then let another one follow it; return what is done with the record."""
    if not policy.has_record:
        assert policy.step_ended(**UNPLANNED).record
    return policy.step_ended(
        **UNPLANNED, confirmation=Confirmation(sequence, False, True, **confirmation)
    ).action


# ---------------------------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize(
    ("phase", "step", "confirmation", "decision", "following"),
    [
        # Warm-up: steps count that could have been records.
        (Phase.WARM_UP, UNPLANNED, None, NOTHING, Phase.WARM_UP),
        (Phase.WARM_UP, FAILED, None, NOTHING, Phase.WARM_UP),
        (Phase.WARM_UP, CUT, None, NOTHING, Phase.WARM_UP),
        (Phase.WARM_UP, DEPARTED, None, NOTHING, Phase.WARM_UP),
        (Phase.WARM_UP, CLEAN, None, NOTHING, Phase.REPLAY),  # of a plan from a file
        # Record: the first step that succeeds.
        (Phase.RECORD, UNPLANNED, None, RECORD, Phase.CONFIRM),
        (Phase.RECORD, DEPARTED, None, RECORD, Phase.OBSERVE),
        (Phase.RECORD, FAILED, None, NOTHING, Phase.RECORD),
        (Phase.RECORD, CUT, None, NOTHING, Phase.RECORD),
        (Phase.RECORD, CLEAN, None, NOTHING, Phase.REPLAY),
        # Confirm: any complete step does it; it is the next record unless it is the same step again, or has failed.
        (Phase.CONFIRM, UNPLANNED, AGAIN, Decision(Action.PLAN), Phase.REPLAY),
        (Phase.CONFIRM, UNPLANNED, ANOTHER, Decision(Action.PLAN, record=True), Phase.CONFIRM),
        (Phase.CONFIRM, DEPARTED, ANOTHER, Decision(Action.PLAN, record=True), Phase.OBSERVE),
        (Phase.CONFIRM, FAILED, ANOTHER, Decision(Action.PLAN), Phase.REPLAY),
        (Phase.CONFIRM, LOGGED, ANOTHER, Decision(Action.PLAN), Phase.REPLAY),
        (Phase.CONFIRM, CUT, None, NOTHING, Phase.RECORD),
        # Replay: clean steps ask for nothing.
        (Phase.REPLAY, CLEAN, None, NOTHING, Phase.REPLAY),
        (Phase.REPLAY, LOGGED, None, NOTHING, Phase.REPLAY),
        (Phase.REPLAY, UNPLANNED, None, RECORD, Phase.CONFIRM),
        (Phase.REPLAY, DEPARTED, None, RECORD, Phase.OBSERVE),
        (Phase.REPLAY, FAILED, None, NOTHING, Phase.REPLAY),
        (Phase.REPLAY, CUT, None, NOTHING, Phase.REPLAY),
        # Observe: as confirm, but there is a plan to go back to.
        (Phase.OBSERVE, DEPARTED, AGAIN, Decision(Action.PLAN), Phase.REPLAY),
        (Phase.OBSERVE, DEPARTED, ANOTHER, Decision(Action.PLAN, record=True), Phase.OBSERVE),
        (Phase.OBSERVE, UNPLANNED, ANOTHER, Decision(Action.PLAN, record=True), Phase.CONFIRM),
        (Phase.OBSERVE, LOGGED, ANOTHER, Decision(Action.PLAN), Phase.REPLAY),
        (Phase.OBSERVE, FAILED, ANOTHER, Decision(Action.PLAN), Phase.REPLAY),
        (Phase.OBSERVE, CUT, None, NOTHING, Phase.REPLAY),
    ],
)
def test_a_step_leads_from_phase_to_phase(
    phase: Phase,
    step: dict[str, Any],
    confirmation: Confirmation | None,
    decision: Decision,
    following: Phase,
) -> None:
    policy = in_phase(phase)
    assert policy.step_ended(**step, confirmation=confirmation) == decision
    assert policy.phase is following
    assert policy.has_record is decision.record


@pytest.mark.parametrize(
    ("phase", "event", "following"),
    [
        ("WARM_UP", "drop_record", "WARM_UP"),
        ("RECORD", "drop_record", "RECORD"),
        ("CONFIRM", "drop_record", "RECORD"),
        ("REPLAY", "drop_record", "REPLAY"),
        ("OBSERVE", "drop_record", "REPLAY"),
        ("RECORD", "steps_are_marked", "RECORD"),
        ("CONFIRM", "steps_are_marked", "RECORD"),
        ("REPLAY", "steps_are_marked", "REPLAY"),
        ("OBSERVE", "steps_are_marked", "REPLAY"),
        ("WARM_UP", "plans_loaded", "WARM_UP"),
        ("RECORD", "plans_loaded", "REPLAY"),
        ("CONFIRM", "plans_loaded", "CONFIRM"),
        ("REPLAY", "plans_loaded", "REPLAY"),
        ("OBSERVE", "plans_loaded", "OBSERVE"),
        ("RECORD", "plan_taken_up", "REPLAY"),
        ("CONFIRM", "plan_taken_up", "CONFIRM"),
        ("REPLAY", "plan_taken_up", "REPLAY"),
        ("OBSERVE", "plan_taken_up", "OBSERVE"),
    ],
)
def test_what_else_happens_leads_from_phase_to_phase(phase: str, event: str, following: str) -> None:
    policy = in_phase(Phase[phase], found=event == "steps_are_marked")
    getattr(policy, event)(**({"overlaps": False} if event == "plan_taken_up" else {}))
    assert policy.phase is Phase[following]
    assert not policy.found


# ------------------------------------------------------------------------------------------------------------ warm-up


@pytest.mark.parametrize(
    ("warmup", "found", "steps"), [(0, False, 0), (1, False, 1), (3, False, 3), (3, True, 0)]
)
def test_as_many_steps_pass_as_were_asked_for_and_none_where_steps_are_found(
    warmup: int, found: bool, steps: int
) -> None:
    policy = LanePolicy(warmup, found=found)
    for _ in range(steps):
        assert policy.phase is Phase.WARM_UP
        assert policy.step_ended(**FAILED) == policy.step_ended(**UNPLANNED) == NOTHING
    assert policy.phase is Phase.RECORD
    assert policy.step_ended(**UNPLANNED) == RECORD


# --------------------------------------------------------------------------------------------------------------- logs


@pytest.mark.parametrize("phase", Phase)
def test_a_log_is_wanted_where_there_is_no_plan_or_a_record_to_confirm(phase: Phase) -> None:
    policy = in_phase(phase)
    assert policy.wants_log(has_plan=False)
    assert policy.wants_log(has_plan=True) is (phase in (Phase.CONFIRM, Phase.OBSERVE))


@pytest.mark.parametrize("found", [False, True])
def test_where_steps_overlap_one_clean_step_is_recorded_to_be_planned_as_several(found: bool) -> None:
    policy = in_phase(Phase.REPLAY, found=found)
    policy.plan_taken_up(overlaps=True)
    for _ in range(LONGEST_ROTATION - 1):
        assert policy.wants_log(has_plan=True) is found  # of steps that are found only those are told of
        assert policy.step_ended(**CLEAN) == NOTHING
    assert policy.wants_log(has_plan=True)
    assert policy.step_ended(**CLEAN) == NOTHING  # it has no log yet
    assert policy.step_ended(**LOGGED) == RECORD
    assert policy.phase is Phase.OBSERVE
    assert policy.step_ended(**LOGGED, confirmation=AGAIN) == Decision(Action.PLAN)
    assert not policy.wants_log(has_plan=True)
    assert policy.step_ended(**LOGGED) == NOTHING  # once


def test_that_a_plan_overlaps_is_forgotten_with_the_next_plan() -> None:
    policy = in_phase(Phase.REPLAY, found=True)
    policy.plan_taken_up(overlaps=True)
    policy.plan_taken_up(overlaps=False)
    assert not policy.wants_log(has_plan=True)
    assert policy.step_ended(**LOGGED) == NOTHING


# -------------------------------------------------------------------------------------------- what becomes of records


def test_the_same_requests_under_another_key_are_another_record() -> None:
    policy = in_phase(Phase.CONFIRM)
    other_key = Confirmation(sequence=1, equal=True, same_key=False)
    assert policy.step_ended(**UNPLANNED, confirmation=other_key) == Decision(Action.PLAN, record=True)


def test_a_record_whose_plan_is_being_made_is_not_planned_again() -> None:
    policy = LanePolicy(0)
    assert next_record(policy, 1) is Action.PLAN
    assert next_record(policy, 1) is Action.NOTHING
    policy.plan_made(1)
    assert next_record(policy, 1) is Action.PLAN
    policy.orders_lost()
    assert next_record(policy, 1) is Action.PLAN


def unproven(**options: Any) -> LanePolicy:
    """Bring a lane to where plans have been made, of records 0 and up, that no step was replayed from."""
    policy = LanePolicy(0, **options)
    for sequence in range(UNPROVEN):
        assert next_record(policy, sequence) is Action.PLAN
        policy.plan_made(sequence)
    return policy


def test_when_plans_prove_nothing_a_new_record_is_not_planned() -> None:
    assert next_record(unproven(), 9) is Action.NOTHING


def test_a_record_that_comes_again_is_planned() -> None:
    policy = unproven()
    assert next_record(policy, 0) is Action.PLAN  # seen before


def test_a_record_whose_step_comes_twice_in_a_row_is_planned() -> None:
    policy = unproven()
    again = Confirmation(9, equal=True, same_key=True)
    assert policy.step_ended(**UNPLANNED, confirmation=again) == Decision(Action.PLAN)


def test_a_record_is_forgotten_after_many_others() -> None:
    policy = unproven()
    for sequence in range(10, 10 + REMEMBERED):
        assert next_record(policy, sequence) is Action.NOTHING
    assert next_record(policy, 0) is Action.NOTHING


def test_a_step_replayed_in_full_is_proof_enough() -> None:
    policy = unproven()
    policy.drop_record()
    assert policy.step_ended(**CLEAN) == NOTHING
    assert next_record(policy, 9) is Action.PLAN


def test_a_clean_step_of_a_plan_that_is_not_in_use_any_more_proves_nothing() -> None:
    policy = unproven()
    policy.drop_record()
    assert policy.step_ended(complete=False, clean=True) == NOTHING
    assert next_record(policy, 9) is Action.NOTHING


# ----------------------------------------------------------------------------------------------------------- patience


@pytest.mark.parametrize(
    ("plan", "every"),
    [
        (Standing(), 1),
        (Standing(revisions=1), 2),
        (Standing(revisions=3), 8),
        (Standing(revisions=1000), 2**LONGEST_BACK_OFF),
    ],
)
def test_a_plan_that_is_succeeded_again_and_again_is_given_more_steps(plan: Standing, every: int) -> None:
    policy = in_phase(Phase.REPLAY)  # two steps have passed
    recorded = []
    for step in range(3, 3 * 2**LONGEST_BACK_OFF):
        if policy.step_ended(complete=True, clean=False, followed=plan).record:
            recorded.append(step)
            policy.drop_record()
    assert recorded == [step for step in range(3, 3 * 2**LONGEST_BACK_OFF) if step % every == 0]


# -------------------------------------------------------------------------------------------- what stands in the way


def test_an_obstructed_plan_is_placed_anew_once_at_a_time() -> None:
    policy = in_phase(Phase.REPLAY)
    assert policy.obstructed(7, PLAN, affordable=True) is Action.PLAN
    assert policy.obstructed(7, PLAN, affordable=True) is Action.NOTHING
    policy.plan_made(7)
    assert policy.obstructed(7, PLAN, affordable=True) is Action.PLAN


def test_one_that_is_placed_again_and_again_is_given_more_steps() -> None:
    policy = in_phase(Phase.REPLAY)
    placed = []
    for step in range(3, 40):
        policy.step_ended(**DEPARTED)
        policy.drop_record()
        if policy.obstructed(step, Standing(revisions=3), affordable=True) is Action.PLAN:
            placed.append(step)
    assert placed == [8, 16, 24, 32]


# ------------------------------------------------------------------------------------------------------ time to plan


def test_what_there_is_no_time_for_is_skipped_and_asked_for_again() -> None:
    policy = in_phase(Phase.REPLAY)
    assert policy.obstructed(7, PLAN, affordable=False) is Action.SKIP
    assert policy.obstructed(7, PLAN, affordable=True) is Action.PLAN
    assert next_record(policy, 1, affordable=False) is Action.SKIP
    assert next_record(policy, 1) is Action.PLAN


def test_what_is_skipped_does_not_count_as_a_plan_that_proves_nothing() -> None:
    policy = in_phase(Phase.RECORD)
    for sequence in range(UNPROVEN + 1):
        assert next_record(policy, sequence, affordable=False) is Action.SKIP
    assert next_record(policy, 9) is Action.PLAN
