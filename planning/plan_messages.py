"""What a lane asks of planning, and what it gets back: plain data, to the planner's thread and from there.

::

    step log ──> PlanJob ──planner's thread──> PlanResult ──next step boundary──> a plan in use

A job carries the plans in use themselves, as the lane knows them, so a result names them without a search. What is
known is taken down when the job is made: the job looks at nothing that the program changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from ..packing.problem import IntArray
    from ..profiler import StepLog
    from .plan import Plan


class InUse(Protocol):
    """A plan in use; what else is known of it is the lane's business."""

    plan: Plan


U = TypeVar("U", bound=InUse)


@dataclass(frozen=True, eq=False)
class Arena:
    """What planning has to know of a lane's arena."""

    reserved: int
    """Bytes of it that are reserved."""
    occupied: IntArray
    """Its ranges in which blocks stay that no plan knows of, int64 (m, 2)."""
    grows: bool = True
    """Whether it can be made larger where it is; else a larger, empty one takes its place."""
    bottom_last: bool = False
    """Whether its beginning is the last to have memory."""


NO_ARENA = Arena(0, np.empty((0, 2), dtype=np.int64))


@dataclass(frozen=True, eq=False)
class PlanJob(Generic[U]):
    """A record that is to be planned, for this arena."""

    log: StepLog
    following: StepLog
    replaced: U | None = None
    """The plan that the recorded step departed from."""
    variants: Sequence[U] = ()
    """The plans of the same key."""
    neighbours: Sequence[U] = ()
    """All plans in the arena, the most important first."""
    arena: Arena = NO_ARENA
    doubted: bool = False
    """Whether missing frees are blamed on the step before."""


class Verdict(Enum):
    """What becomes of a job."""

    KEEP = auto()  # there is nothing to plan, or it has failed: what there is stays
    GROW = auto()  # the plan stays, in an arena of more bytes
    PLAN = auto()  # a plan comes into use


@dataclass(frozen=True, eq=False)
class PlanResult(Generic[U]):
    """What became of a job."""

    verdict: Verdict
    replaced: U | None = None
    """The plan that stays although a step has departed from it, or whose place is taken."""
    plan: Plan | U | None = None
    """What comes into use: a new plan, or one that is in use already."""
    arena_bytes: int = 0
    """Bytes of the arena that is to be reserved."""
