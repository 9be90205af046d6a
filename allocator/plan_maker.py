"""From a record to a plan: what runs on the planner's thread.

::

    record, the step after it ──> profile ──> packed alone ──> settled among its neighbours ──> entry for the cache
                          └─────> merged with the plan that it departed from ──> packed ──────────┘

A record is of the structure of the plan that it departed from, with larger sizes or other frees: then its plan is the
successor; or it is one more variant; or it teaches nothing. Nothing here raises: whatever fails, the old plan or
upstream goes on serving.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..profiler import Profile, StepLog
from ..profiler.steps import profile_step
from . import realign
from .cache import Entry
from .neighbours import settle
from .plan import Plan, largest, make_plan, same_structure
from .planner import let_others_run
from .shared_plans import SharedPlans, fingerprint

WORTH = 1.03
"""Bytes reserved for each byte ever alive, up to which a merged plan may go."""

OVERLAPPING = 0.01
"""Share of a step's blocks, or bytes, that may overlap their successors before two steps are planned together."""


class Memory(Protocol):
    """What is asked of a pool's compiled half."""

    def arena_bytes(self, lane: int) -> int:
        """Return the size of a lane's arena."""

    def counters(self) -> dict[str, Any]:
        """Return the counters of all lanes."""


@dataclass(frozen=True)
class Record:
    """A step that may become a plan: its key, its log, and the plan that it departed from."""

    key: Hashable
    log: StepLog
    departed_from: Entry | None


@dataclass(frozen=True)
class Solved:
    """What the planner made of a record: an entry for the cache (None: nothing), and the one whose place it takes.

    An entry that takes its own place taught nothing.
    """

    sequence: int
    entry: Entry | None = None
    replaces: Entry | None = None


class PlanMaker:
    """Makes one lane's plans.

    Parameters
    ----------
    backend, lane
        What serves the requests, and its number for the lane.
    entry
        Makes an entry of a key and a plan, on any thread.
    shared
        Plans of all lanes.
    alignment, solver
        Of the plans: bytes, and the name of the packing solver.
    """

    def __init__(
        self,
        backend: Memory,
        lane: int,
        entry: Callable[[Hashable, Plan], Entry],
        shared: SharedPlans,
        *,
        alignment: int,
        solver: str,
    ) -> None:
        self._backend, self._lane, self._entry, self._shared = backend, lane, entry, shared
        self._alignment, self._solver = alignment, solver

    def solve(
        self,
        sequence: int,
        record: Record,
        following: StepLog,
        variants: list[Entry],
        neighbours: list[Plan],
        arena_bytes: int,
        found: bool,
    ) -> Solved:
        """Make a plan for a record (`found`: nobody marked it), in agreement with the others in the arena."""
        let_others_run()
        try:
            profile, steps = _profile(record.log, following)
            if found:
                steps = 1  # two found and taken for one are one
            let_others_run()
            if any(
                entry.plan.profile.same_blocks(profile) or _is_twice(entry.plan.profile, profile)
                for entry in variants
                if entry is not record.departed_from
            ):
                return Solved(sequence)  # it was planned while this record was waiting
            replaces = _succeeded(record.departed_from, profile)
            if replaces is not None:
                if _teaches_nothing(replaces.plan.profile, profile):
                    return Solved(sequence, replaces, replaces)
                if len(profile) == len(replaces.plan.profile):
                    profile = largest(replaces.plan.profile, profile)
                neighbours = [plan for plan in neighbours if plan is not replaces.plan]
            made_of = fingerprint(profile), steps, tuple(neighbours), arena_bytes
            plan = self._shared.find(made_of, lambda: self._pack(profile, steps, neighbours, arena_bytes))
            let_others_run()
            return Solved(sequence, self._entry(record.key, plan), replaces)
        except Exception:
            return Solved(sequence)  # upstream, or the old plan, goes on serving

    def _pack(self, profile: Profile, steps: int, neighbours: list[Plan], arena_bytes: int) -> Plan:
        alone = make_plan(profile, alignment=self._alignment, planner=self._solver, steps=steps)
        let_others_run()
        return settle(alone, neighbours, arena_bytes=arena_bytes, planner=self._solver)

    def merge(self, sequence: int, old: Entry, record: Record, following: StepLog) -> Solved:
        """Make a plan for a record and for the steps that another plan stands for."""
        try:
            both = realign.merge(old.plan.profile, old.plan.merged, record.log, following)
            if both is None:
                return Solved(sequence, old, old)
            quick = "best_fit" if self._solver == "auto" else self._solver  # the next record will succeed it
            plan = make_plan(both[0], alignment=self._alignment, planner=quick, merged=both[1])
            let_others_run()
            counters = self._backend.counters()
            other_arenas = counters["arena_bytes"] - self._backend.arena_bytes(self._lane)
            reserved = plan.arena_bytes + other_arenas + counters["upstream_bytes"]
            if reserved > WORTH * counters["peak_live_bytes"]:
                return Solved(sequence, old, old)
            return Solved(sequence, self._entry(record.key, plan), old)
        except Exception:
            return Solved(sequence)  # upstream, or the old plan, goes on serving


def _profile(log: StepLog, following: StepLog) -> tuple[Profile, int]:
    """Return the profile of a step, or of two in turn where much of it overlaps; and of how many it is."""
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


def _succeeded(entry: Entry | None, profile: Profile) -> Entry | None:
    """Return the plan that a record departed from, if the record is its successor rather than another variant."""
    if entry is None:
        return None
    old = entry.plan.profile
    alike = same_structure(old, profile) or np.array_equal(old.size, profile.size) or _is_twice(profile, old)
    return entry if alike else None


def _teaches_nothing(old: Profile, new: Profile) -> bool:
    """Whether a step that was not served from its plan throughout had no other reason than what stood in its way."""
    return same_structure(old, new) and bool((new.size <= old.size).all())


def _is_twice(plan: Profile, step: Profile) -> bool:
    """Whether a plan is one of two such steps taken as one."""
    return np.array_equal(plan.size, np.tile(step.size, 2))
