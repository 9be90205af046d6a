"""From a record to a plan.

::

    record, the step after it ──> profile ──> packed alone ──> placed beside its neighbours ──> plan

A record is of the structure of the plan that it departed from, with larger sizes or other frees: then its plan is the
successor; or it is one more variant; or it teaches nothing.

All this runs beside the program. The solvers release the GIL; what holds it comes in pieces of a millisecond or less,
and between them `Options.step_aside` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..packing import pack
from ..profiler import Profile, StepLog
from ..profiler.steps import profile_step, steps_in_turn
from .co_placement import NO_RANGES, place_around, place_beside, stack_wrapped
from .plan import Pack, Plan, largest, make_plan, same_structure
from .shared import SharedPlans, contents


@dataclass(frozen=True)
class Options:
    """How plans are made.

    Attributes
    ----------
    alignment
        Bytes; of every offset.
    solver
        Name of the packing solver.
    step_aside
        Called between pieces of the work, to let other threads run.
    packer
        What packs: it may ask a store first.
    """

    alignment: int
    solver: str = "auto"
    step_aside: Callable[[], object] = lambda: None
    packer: Pack = pack


@dataclass(frozen=True, eq=False)
class Task:
    """A record that is to be planned, and what is known when it is handed over.

    Attributes
    ----------
    log, following
        The record, and the step after it.
    departed_from
        The plan that the recorded step was expected to follow, or None.
    variants
        The plans of the same key.
    neighbours
        All plans in the arena, the most important first.
    arena_bytes
        The arena that is reserved.
    stayers
        Ranges of the arena that blocks no plan knows of stay in, int64 (m, 2).
    grows
        Whether the arena can be made larger where it is; else a larger one is empty of stayers.
    doubted
        Whether the record is believed to have no other reason for frees that it lacks than what came before it.
    bottom_last
        Whether the arena's beginning is the last to have memory.
    """

    log: StepLog
    following: StepLog
    departed_from: Plan | None = None
    variants: Sequence[Plan] = ()
    neighbours: Sequence[Plan] = ()
    arena_bytes: int = 0
    stayers: npt.NDArray[np.int64] = field(default_factory=NO_RANGES.copy)
    grows: bool = True
    doubted: bool = False
    bottom_last: bool = False


@dataclass(frozen=True, eq=False)
class Made:
    """What became of a record: a plan (None: nothing), and the one whose place it takes.

    A plan that takes its own place taught nothing. It may be one of the variants.
    """

    plan: Plan | None = None
    replaces: Plan | None = None


def plan_record(task: Task, shared: SharedPlans, options: Options) -> Made:
    """Make a plan for a record, in agreement with the others in the arena.

    Raises
    ------
    StowplanError
        The solver fails.
    """
    options.step_aside()
    old = task.departed_from or _twin(task.variants, task.log)
    profile, steps = _profile(task.log, task.following, _turns(old, task.log))
    options.step_aside()
    others = (plan for plan in task.variants if plan is not task.departed_from)
    known = next((plan for plan in others if _covers(plan.profile, profile)), None)
    if known is not None:  # it was planned while this record was waiting
        if task.departed_from is not None and _same_requests(known.profile, task.departed_from.profile):
            return Made(
                known, task.departed_from
            )  # which steps would go on to follow: they cannot tell the two apart
        return Made()
    neighbours = tuple(task.neighbours)
    if old is not None and _are_turns(old.profile, profile) and len(old.profile) > len(profile):
        return Made(old, old)
    if old is not None and not _succeeds(profile, steps, old):
        old = None
    if old is not None:
        if _teaches_nothing(old.profile, profile) or (task.doubted and _forgets(old, profile, steps)):
            return Made(old, old)
        if len(profile) == len(old.profile):
            profile = largest(old.profile, profile)
        neighbours = tuple(plan for plan in neighbours if plan is not old)

    def make() -> Plan:
        solver, packer = options.solver, options.packer
        alone = make_plan(profile, alignment=options.alignment, planner=solver, steps=steps, packer=packer)
        if task.bottom_last and not neighbours:
            options.step_aside()
            alone = stack_wrapped(alone, planner=solver, packer=packer)
        options.step_aside()
        beside = place_beside(alone, neighbours, arena_bytes=task.arena_bytes, planner=solver, packer=packer)
        limit = None if task.grows else task.arena_bytes
        around = place_around(beside, stayers, neighbours, arena_bytes=limit, planner=solver, packer=packer)
        return beside if around is None else around

    # Of a step that was not repeated they may be blocks, which have their places in the plan.
    stayers = task.stayers if task.log.equals(task.following) else NO_RANGES
    arena_bytes = task.arena_bytes if neighbours or len(stayers) else 0
    made_of = (contents(profile), steps, neighbours, arena_bytes, stayers.tobytes())
    plan = shared.find(made_of, make)
    options.step_aside()
    return Made(plan, old)


def _profile(log: StepLog, following: StepLog, least: int) -> tuple[Profile, int]:
    """Return the profile of a step, or of several in turn if much of it overlaps; and of how many, `least` or more."""
    steps = max(least, steps_in_turn(following)) if log.equals(following) else 1
    if steps == 1:
        return profile_step(log, following), 1
    several = following.times(steps)
    return profile_step(several, several), steps


def _same_requests(one: Profile, other: Profile) -> bool:
    return np.array_equal(one.size, other.size) and np.array_equal(one.stream, other.stream)


def _covers(plan: Profile, step: Profile) -> bool:
    """Whether a plan is of a step like this one, or of several taken as one."""
    return plan.same_blocks(step) or (len(plan) > len(step) and _are_turns(plan, step))


def _succeeds(new: Profile, steps: int, old: Plan) -> bool:
    """Whether a record of so many steps succeeds the plan that it departed from, rather than being another variant."""
    if same_structure(old.profile, new):
        return True
    one, other = new.size[: len(new) // steps], old.profile.size[: len(old.profile) // old.steps]
    return np.array_equal(one, other)


def _teaches_nothing(old: Profile, new: Profile) -> bool:
    """Whether a step that was not served from its plan throughout had no other reason than what stood in its way."""
    return same_structure(old, new) and bool((new.size <= old.size).all())


def _forgets(old: Plan, new: Profile, steps: int) -> bool:
    """Whether a record of steps in turn has all that the plan leaves out, and more.

    Frees of blocks from before another step, which the plan's own record had seen, are not in its log.
    """
    if old.steps == 1 or not len(new):
        return False
    left_out = np.logical_or.reduce(old.profile.escaped.reshape(old.steps, -1))
    now = np.logical_or.reduce(new.escaped.reshape(steps, -1))
    return left_out.shape == now.shape and bool((left_out <= now).all() and (left_out < now).any())


def _turns(plan: Plan | None, step: StepLog) -> int:
    """Return how many such steps a plan is of; 1 if it is not of such."""
    if plan is None or not np.array_equal(plan.profile.size, np.tile(step.requested, plan.steps)):
        return 1
    return plan.steps


def _twin(variants: Sequence[Plan], step: StepLog) -> Plan | None:
    """Return the plan of the same requests: no step could tell the two apart."""
    return next(
        (p for p in variants if np.array_equal(p.profile.size, np.tile(step.requested, p.steps))), None
    )


def _are_turns(plan: Profile, step: Profile) -> bool:
    """Whether a plan is of such steps in turn."""
    return len(step) > 0 and np.array_equal(plan.size, np.tile(step.size, len(plan) // len(step)))
