"""The plan: a profile, where its blocks go, and the form in which the replay core reads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..packing import Placement, Problem, pack
from ..profiler import Profile
from ._core import CorePlan

IntArray = npt.NDArray[np.int64]

UNPLANNED = -1


@dataclass(frozen=True)
class Plan:
    """A profile and the placement of its planned blocks.

    Attributes
    ----------
    profile
        The step.
    rows
        Which blocks of the profile are planned, int64 (k,): all but the escaped ones.
    problem
        These blocks as the packer saw them, sizes rounded up to the alignment.
    placement
        Their offsets. Checked: no two conflict.
    """

    profile: Profile
    rows: IntArray
    problem: Problem
    placement: Placement

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena that the plan needs."""
        return self.placement.peak

    def core(self) -> CorePlan:
        """Return the plan in the replay core's form (allocator/core/plan.hpp)."""
        profile, n = self.profile, len(self.profile)
        offset = np.full(n, UNPLANNED, dtype=np.int64)
        offset[self.rows] = self.placement.offsets
        capacity = profile.size.copy()
        capacity[self.rows] = self.problem.size
        # A block is due at the number of requests that come before its free.
        freed_at = profile.end[self.rows] % profile.period if n else profile.end
        due_at = np.searchsorted(profile.start, freed_at)
        due = self.rows[np.argsort(due_at, kind="stable")]
        due_begin = np.searchsorted(np.sort(due_at), np.arange(n + 2))
        return CorePlan(offset, profile.size, capacity, due_begin.astype(np.int64), due, self.arena_bytes)


def problem_of(profile: Profile, alignment: int) -> tuple[Problem, IntArray]:
    """Return the packing problem of the planned blocks, and their rows in the profile, int64 (k,).

    Sizes are rounded up to the alignment, and nothing is smaller than one alignment unit, so that live blocks have
    different addresses. A wrapped block is alive in ``[0, period)`` except one gap.
    """
    rows = np.flatnonzero(~profile.escaped).astype(np.int64)
    start, end, gaps = profile.on_line(rows)
    size = np.maximum(-(-profile.size[rows] // alignment), 1) * alignment
    return Problem(size, start, end, gaps=gaps, alignment=alignment), rows


def make_plan(profile: Profile, *, alignment: int, solver: str = "auto") -> Plan:
    """Solve the packing problem of a profile.

    Parameters
    ----------
    profile
        The step.
    alignment
        Bytes; every address that the plan gives out is a multiple of it, relative to the arena.
    solver
        A name from `stowplan.packing.solvers`.

    Raises
    ------
    UnknownSolverError
        There is no such solver.
    ConflictError
        The solver's placement is wrong: `pack` validates it, whoever is to blame.
    """
    problem, rows = problem_of(profile, alignment)
    return Plan(profile, rows, problem, pack(problem, solver=solver))
