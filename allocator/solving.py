"""From a recorded step to a plan, on the planner's thread.

::

    record + the step that followed ── profile ── known already? ──> nothing
                                          │
                                          ├── the same structure as the plan departed from ──> its successor
                                          └── else ──> one more variant

A plan is packed alone first, and then settled among the others.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from ..profiler import Profile, StepLog
from ..profiler.steps import profile_step
from .cache import Entry
from .neighbours import settle
from .plan import Plan, largest, make_plan, same_structure

OVERLAPPING = 0.01
"""Share of a step's blocks that may overlap their successors before two steps found are taken for one."""


@dataclass(frozen=True)
class Record:
    """A step that may become a plan: its key, its log, and the plan that it departed from."""

    key: Hashable
    log: StepLog
    departed_from: Entry | None


@dataclass(frozen=True)
class Task:
    """A plan to be made.

    Attributes
    ----------
    sequence
        The controller's name for it.
    record, following
        The step, and the log of the one that followed it.
    variants
        The plans of its key.
    neighbours
        All plans.
    arena_bytes
        Of the arena that is reserved already.
    alignment, solver
        Of the placement.
    may_double
        Whether two steps may be taken for one.
    """

    sequence: int
    record: Record
    following: StepLog
    variants: list[Entry]
    neighbours: list[Plan]
    arena_bytes: int
    alignment: int
    solver: str
    may_double: bool


@dataclass(frozen=True)
class Solved:
    """A plan that the planner made (None: it failed), and what it takes the place of."""

    sequence: int
    key: Hashable
    plan: Plan | None
    replaces: Entry | None


def solve(task: Task) -> Solved:
    """Make a plan. Never raises: upstream, or the old plan, goes on serving."""
    try:
        plan, replaces = _solve(task)
    except Exception:
        plan, replaces = None, None
    return Solved(task.sequence, task.record.key, plan, replaces)


def _solve(task: Task) -> tuple[Plan | None, Entry | None]:
    departed_from = task.record.departed_from
    profile = _profile(task)
    others = [entry.plan.profile for entry in task.variants if entry is not departed_from]
    if any(other.same_blocks(profile) or _is_twice(other, profile) for other in others):
        return None, None  # it was planned while this record was waiting
    replaces = _succeeded(departed_from, profile)
    neighbours = task.neighbours
    if replaces is not None:
        if _teaches_nothing(replaces.plan.profile, profile):
            return replaces.plan, replaces
        profile = largest(replaces.plan.profile, profile)
        neighbours = [plan for plan in neighbours if plan is not replaces.plan]
    alone = make_plan(profile, alignment=task.alignment, planner=task.solver)
    return settle(alone, neighbours, arena_bytes=task.arena_bytes, planner=task.solver), replaces


def _profile(task: Task) -> Profile:
    """Return the profile of the step; of two in one, where they may be and that leaves fewer escaped blocks."""
    log, following = task.record.log, task.following
    n = len(log.requested)
    if task.may_double and log.equals(following) and log.overlap(following) > OVERLAPPING * n:
        log = following = following.twice()
    return profile_step(log, following)


def _succeeded(entry: Entry | None, profile: Profile) -> Entry | None:
    """Return the plan that a record departed from, if the record is its successor rather than another variant."""
    if entry is None:
        return None
    old = entry.plan.profile
    return entry if same_structure(old, profile) or np.array_equal(old.size, profile.size) else None


def _teaches_nothing(old: Profile, new: Profile) -> bool:
    """Whether a step that was not served from its plan throughout had no other reason than what stood in its way."""
    return same_structure(old, new) and bool((new.size <= old.size).all())


def _is_twice(plan: Profile, step: Profile) -> bool:
    """Whether a plan is one of two such steps taken as one."""
    return np.array_equal(plan.size, np.tile(step.size, 2))
