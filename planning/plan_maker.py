"""From a record to a plan.

::

    record, the step after it ──> profile ──> packed alone ──> placed next to its neighbours ──> plan

A record is of the structure of the plan that it departed from, with larger sizes or other frees: then its plan is the
successor; or it is one more variant; or it teaches nothing.

All this runs concurrently with the program. The solvers release the GIL; what holds it comes in pieces of a millisecond
or less, and between them `Options.step_aside` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from ..packing import pack
from ..profiler import Profile, StepLog
from ..profiler.steps import profile_in_turn
from .co_placement import NO_RANGES, obstructed_bytes, place_around, place_beside, stack_wrapped
from .plan import Pack, Plan, largest, make_plan, same_structure
from .plan_dedup import SharedPlans, contents
from .plan_messages import Arena, PlanJob, PlanResult, U, Verdict

ELSEWHERE = 0.5
"""Share of an arena; where upstream has to hold more of a plan's blocks than this, another arena takes its place."""

LOOSE, SPARED = 1 / 8, 8 << 20
"""Share of its lower bound, and bytes, that a plan's arena may have above it. An allocator without plans needs little
more than what is alive; what idles in a looser arena would have to go back, and come again, in every step."""


@dataclass(frozen=True)
class Options:
    """How plans are made: offsets are multiples of `alignment` bytes."""

    alignment: int
    packer: Pack = pack
    step_aside: Callable[[], object] = lambda: None
    """Called between pieces of the work, to let other threads run."""


class Relation(Enum):
    """What the profile of a record is to a plan."""

    SAME = auto()  # the plan's step, or one of several that the plan takes as one
    WITHIN = auto()  # the same requests and frees in the same order, none larger
    LACKS_FREES = auto()  # the same sizes, fewer frees: the log of steps in turn began after another step
    SUCCESSOR = auto()  # larger sizes, or the same ones with other frees
    OTHER = auto()  # another variant


def plan_record(job: PlanJob[U], shared: SharedPlans, options: Options) -> PlanResult[U]:
    """Make a plan for a record, in agreement with the others in the arena. StowplanError where the solver fails."""
    options.step_aside()
    departed = job.replaced
    # A plan of the same requests is the old one: no step could tell the two apart.
    old = departed or next((used for used in job.variants if _has_requests(used.plan, job.log)), None)
    least = old.plan.steps if old is not None and _has_requests(old.plan, job.log) else 1
    profile, steps = profile_in_turn(job.log, job.following, least)
    options.step_aside()
    others = (used for used in job.variants if used is not departed)
    known = next((used for used in others if _relation(used.plan, profile, steps) is Relation.SAME), None)
    if known is not None:  # it was planned while this record was waiting
        if departed is not None and _same_requests(known.plan.profile, departed.plan.profile):
            # Steps would go on to follow the other: they cannot tell the two apart.
            return PlanResult(Verdict.PLAN, departed, known)
        return PlanResult(Verdict.KEEP)
    relation = Relation.OTHER if old is None else _relation(old.plan, profile, steps)
    if relation in (Relation.SAME, Relation.WITHIN) or (relation is Relation.LACKS_FREES and job.doubted):
        return PlanResult(Verdict.KEEP, old)
    if relation is Relation.OTHER:
        old = None
    if old is not None and len(profile) == len(old.plan.profile):
        profile = largest(old.plan.profile, profile)
    neighbours = tuple(used.plan for used in job.neighbours if used is not old)
    # If the step did not repeat, a lasting block may be one that the plan has a place for.
    arena = job.arena if job.log.equals(job.following) else replace(job.arena, occupied=NO_RANGES)
    reserved = arena.reserved if neighbours or len(arena.occupied) else 0
    beside = tuple(contents(plan.profile, plan.placement.offsets) for plan in neighbours)
    made_of = (contents(profile), steps, beside, reserved, arena.occupied.tobytes())
    plan = shared.find(made_of, lambda: _place(profile, steps, neighbours, arena, options))
    options.step_aside()
    idle = plan.arena_bytes - int(np.diff(arena.occupied).sum()) - plan.placement.lower_bound
    is_loose = idle > LOOSE * plan.placement.lower_bound + SPARED
    return PlanResult(Verdict.KEEP, old) if is_loose else PlanResult(Verdict.PLAN, old, plan)


def _place(profile: Profile, steps: int, neighbours: Sequence[Plan], arena: Arena, options: Options) -> Plan:
    """Pack a profile's blocks, next to the other plans and around what stays."""
    packer = options.packer
    alone = make_plan(profile, alignment=options.alignment, steps=steps, packer=packer)
    if arena.bottom_last and not neighbours:
        options.step_aside()
        alone = stack_wrapped(alone, packer=packer)
    options.step_aside()
    beside = place_beside(alone, neighbours, arena_bytes=arena.reserved, packer=packer)
    around = _around(beside, neighbours, arena, options)
    return beside if around is None else around


def _around(plan: Plan, neighbours: Sequence[Plan], arena: Arena, options: Options) -> Plan | None:
    """Place a plan around what stays; None where the arena is too small for that, and cannot grow."""
    limit = None if arena.grows else arena.reserved
    return place_around(plan, arena.occupied, neighbours, arena_bytes=limit, packer=options.packer)


def replan_obstructed(old: U, neighbours: Sequence[U], arena: Arena, options: Options) -> PlanResult[U]:
    """Place a plan again, around what stays in its way.

    Where the arena is too small for that, and cannot grow, another one takes its place if so much of the plan is served
    by upstream that this hardly needs more memory.

    Raises
    ------
    StowplanError
        The solver fails.
    """
    plan = _around(old.plan, [used.plan for used in neighbours], arena, options)
    if plan is not None:
        return PlanResult(Verdict.PLAN, old, plan)
    if obstructed_bytes(old.plan, arena.occupied) <= ELSEWHERE * arena.reserved:
        return PlanResult(Verdict.KEEP, old)
    return PlanResult(Verdict.GROW, old, arena_bytes=arena.reserved + options.alignment)


def _relation(old: Plan, new: Profile, steps: int) -> Relation:
    """Tell what a profile of so many steps in turn is to a plan.

    If another step ran in between, a record lacks frees of older blocks, which the plan's own record had seen.
    """
    planned = old.profile
    turns = len(planned) // max(len(new), 1)
    if planned.same_blocks(new) or (turns > 1 and np.array_equal(planned.size, np.tile(new.size, turns))):
        return Relation.SAME
    if same_structure(planned, new):
        return Relation.WITHIN if (new.size <= planned.size).all() else Relation.SUCCESSOR
    if not np.array_equal(new.size[: len(new) // steps], planned.size[: len(planned) // old.steps]):
        return Relation.OTHER
    left_out = planned.escaped.reshape(old.steps, -1).any(axis=0)
    now = new.escaped.reshape(steps, -1).any(axis=0)
    is_less = old.steps > 1 and (left_out <= now).all() and (left_out < now).any()
    return Relation.LACKS_FREES if is_less else Relation.SUCCESSOR


def _same_requests(one: Profile, other: Profile) -> bool:
    return np.array_equal(one.size, other.size) and np.array_equal(one.stream, other.stream)


def _has_requests(plan: Plan, step: StepLog) -> bool:
    """Whether a plan is of a step's requests, as often in turn as it has steps."""
    return np.array_equal(plan.profile.size, np.tile(step.requested, plan.steps))
