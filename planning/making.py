"""From a record to a plan.

::

    record, the step after it ──> profile ──> packed alone ──> placed beside its neighbours ──> plan
                          └─────> merged with the plan that it departed from ──> packed ──────────┘

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

from ..profiler import Profile, StepLog
from ..profiler.steps import profile_step
from .co_placement import NO_RANGES, place_around, place_beside
from .merging import merge
from .plan import Plan, largest, make_plan, same_structure
from .shared import SharedPlans, fingerprint

OVERLAPPING = 0.01
"""Share of a step's blocks, or bytes, that may overlap their successors before two steps are planned together."""


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
    """

    alignment: int
    solver: str = "auto"
    step_aside: Callable[[], object] = lambda: None

    @property
    def quick(self) -> str:
        """The solver for merged plans, which have successors soon: a quick one for ``"auto"``."""
        return "best_fit" if self.solver == "auto" else self.solver


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
    found
        Whether the step was found, rather than marked by the program.
    stayers
        Ranges of the arena that blocks no plan knows of stay in, int64 (m, 2).
    grows
        Whether the arena can be made larger where it is; else a larger one is empty of stayers.
    """

    log: StepLog
    following: StepLog
    departed_from: Plan | None = None
    variants: Sequence[Plan] = ()
    neighbours: Sequence[Plan] = ()
    arena_bytes: int = 0
    found: bool = False
    stayers: npt.NDArray[np.int64] = field(default_factory=NO_RANGES.copy)
    grows: bool = True


@dataclass(frozen=True, eq=False)
class Made:
    """What became of a record: a plan (None: nothing), and the one whose place it takes.

    A plan that takes its own place taught nothing.
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
    old = task.departed_from
    profile, steps = _profile(task.log, task.following)
    if task.found:
        steps = 1  # two found and taken for one are one
    options.step_aside()
    if any(_covers(plan.profile, profile) for plan in task.variants if plan is not old):
        return Made()  # it was planned while this record was waiting
    neighbours = tuple(task.neighbours)
    if old is not None and not _succeeds(profile, old.profile):
        old = None
    if old is not None:
        if _teaches_nothing(old.profile, profile):
            return Made(old, old)
        if len(profile) == len(old.profile):
            profile = largest(old.profile, profile)
        neighbours = tuple(plan for plan in neighbours if plan is not old)

    def pack() -> Plan:
        alone = make_plan(profile, alignment=options.alignment, planner=options.solver, steps=steps)
        options.step_aside()
        beside = place_beside(alone, neighbours, arena_bytes=task.arena_bytes, planner=options.solver)
        limit = None if task.grows else task.arena_bytes
        around = place_around(beside, stayers, neighbours, arena_bytes=limit, planner=options.solver)
        return beside if around is None else around

    # Of a step that was not repeated they may be blocks, which have their places in the plan.
    stayers = task.stayers if task.log.equals(task.following) else NO_RANGES
    made_of = (fingerprint(profile), steps, neighbours, task.arena_bytes, stayers.tobytes())
    plan = shared.find(made_of, pack)
    options.step_aside()
    return Made(plan, old)


def plan_merged(old: Plan, log: StepLog, following: StepLog, options: Options) -> Plan | None:
    """Make a plan for a record and for the steps that another plan stands for.

    Parameters
    ----------
    old
        The plan that the record departed from.
    log, following
        The record, and the step after it.
    options
        Of the solvers, the quick one is used.

    Returns
    -------
    The plan; None if the record has too little in common with the old one.

    Raises
    ------
    StowplanError
        The solver fails.
    """
    both = merge(old.profile, old.merged, log, following, options.step_aside)
    if both is None:
        return None
    plan = make_plan(both[0], alignment=options.alignment, planner=options.quick, merged=both[1])
    options.step_aside()
    return plan


def _profile(log: StepLog, following: StepLog) -> tuple[Profile, int]:
    """Return the profile of a step, or of two in turn if much of it overlaps; and of how many it is."""
    if not log.equals(following) or not overlap_matters(log.overlapping(following), log.requested):
        return profile_step(log, following), 1
    two = following.twice()
    return profile_step(two, two), 2


def overlap_matters(overlapping: npt.NDArray[np.bool_], size: npt.NDArray[np.int64]) -> bool:
    """Whether so much of a step overlaps its successors that two steps should be planned together.

    Parameters
    ----------
    overlapping
        Which blocks do, bool (n,).
    size
        Bytes of each, int64 (n,).
    """
    share = max(overlapping.sum() / max(len(size), 1), size[overlapping].sum() / max(size.sum(), 1))
    return bool(share > OVERLAPPING)


def _covers(plan: Profile, step: Profile) -> bool:
    """Whether a plan is of a step like this one, or of two taken as one."""
    return plan.same_blocks(step) or _is_twice(plan, step)


def _succeeds(new: Profile, old: Profile) -> bool:
    """Whether a record is the successor of the plan that it departed from, rather than another variant."""
    return same_structure(old, new) or np.array_equal(old.size, new.size) or _is_twice(new, old)


def _teaches_nothing(old: Profile, new: Profile) -> bool:
    """Whether a step that was not served from its plan throughout had no other reason than what stood in its way."""
    return same_structure(old, new) and bool((new.size <= old.size).all())


def _is_twice(plan: Profile, step: Profile) -> bool:
    """Whether a plan is one of two such steps taken as one."""
    return np.array_equal(plan.size, np.tile(step.size, 2))
