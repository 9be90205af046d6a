"""The plan: a profile, and where its blocks go."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..packing import PackingProgress, Placement, Problem, pack
from ..packing.problem import IntArray
from ..profiler import Profile
from ..profiler.profile import COLUMNS

Pack = Callable[[Problem], Placement]
"""From a problem to a placement: `pack`, or `pack` with a solver's name and other options."""

UNPLANNED = -1
"""The offset of a block that is not planned."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A profile and the placement of its planned blocks. Plans are compared by identity.

    Attributes
    ----------
    profile
        The step.
    rows
        Which blocks of the profile are planned, int64 (k,): `.Profile.planned`.
    problem
        These blocks as the packer saw them, sizes rounded up to the alignment.
    placement
        Their offsets. Checked: no two conflict.
    steps
        Steps of the program that the profile is of: 1, or as many as take turns on the plan.

    Examples
    --------
    Blocks 0 and 2 are never alive together and share addresses; block 1 escapes and has no place in the arena:

    >>> from stowplan import Profile
    >>> from stowplan.planning import make_plan
    >>> profile = Profile(size=[300, 100, 200], start=[0, 1, 3], end=[2, -1, 4], period=5)
    >>> plan = make_plan(profile, alignment=64)
    >>> plan.arena_bytes, plan.offset.tolist()
    (320, [0, -1, 0])
    """

    profile: Profile
    rows: IntArray
    problem: Problem
    placement: Placement
    steps: int = 1

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena that the plan needs."""
        return self.placement.peak

    @property
    def nbytes(self) -> int:
        """Bytes of its columns."""
        profile, problem = self.profile, self.problem
        columns = [getattr(profile, name) for name in (*COLUMNS, "site", "alive")]
        columns += [problem.size, problem.start, problem.end, problem.gaps, problem.alignment, problem.fixed]
        return sum(column.nbytes for column in (*columns, self.rows, self.placement.offsets))

    @property
    def offset(self) -> IntArray:
        """Offset of each block of the profile, ``UNPLANNED`` if it has none, int64 (n,)."""
        offset = np.full(len(self.profile), UNPLANNED, dtype=np.int64)
        offset[self.rows] = self.placement.offsets
        return offset

    @property
    def residents(self) -> IntArray:
        """Address ranges of the wrapped blocks, which stand between steps too, int64 (m, 2), begin and end."""
        wrapped = self.profile.wrapped[self.rows]
        begin = self.placement.offsets[wrapped]
        return np.column_stack([begin, begin + self.problem.size[wrapped]])


def problem_of(profile: Profile, alignment: int) -> tuple[Problem, IntArray]:
    """Return the packing problem of the planned blocks, and their rows in the profile, int64 (k,).

    Sizes are rounded up to the alignment, and nothing is smaller than one alignment unit, so that live blocks have
    different addresses. A wrapped block is alive in ``[0, period)`` except one gap.
    """
    rows = np.flatnonzero(profile.planned).astype(np.int64)
    start, end, gaps = profile.on_line(rows)
    size = np.maximum(-(-profile.size[rows] // alignment), 1) * alignment
    return Problem(size, start, end, gaps=gaps, alignment=alignment), rows


def make_plan(
    profile: Profile,
    *,
    alignment: int,
    solver: str = "auto",
    time_limit: float | None = None,
    threads: int = 1,
    progress: Callable[[PackingProgress], object] | None = None,
    steps: int = 1,
    packer: Pack | None = None,
    planner: str | None = None,
) -> Plan:
    """Solve the packing problem of a profile.

    Parameters
    ----------
    profile
        The step.
    alignment
        Bytes; every address that the plan gives out is a multiple of it, relative to the arena.
    solver
        A name from `stowplan.packing.solvers`, or ``"auto"``.
    time_limit, threads, progress
        Passed on to `stowplan.packing.pack`.
    steps
        Steps of the program that the profile is of; see `Plan`.
    packer
        Packs in place of `stowplan.packing.pack` with these options.
    planner
        The former name of ``solver``, for one release.

    Raises
    ------
    UnknownSolverError
        There is no such solver.
    ConflictError
        The solver's placement is wrong: `pack` validates every placement.
    """
    if planner is not None:
        warnings.warn("make_plan(planner=...) is now make_plan(solver=...)", DeprecationWarning, stacklevel=2)
        solver = planner
    problem, rows = problem_of(profile, alignment)
    if packer is None:
        packer = partial(pack, solver=solver, time_limit=time_limit, threads=threads, progress=progress)
    return Plan(profile, rows, problem, packer(problem), steps)


def same_structure(a: Profile, b: Profile) -> bool:
    """Whether two profiles have the same requests and frees in the same order, whatever their sizes."""
    return a.period == b.period and np.array_equal(a.start, b.start) and np.array_equal(a.end, b.end)


def largest(a: Profile, b: Profile) -> Profile:
    """Return the element-wise maximum of two profiles of the same structure (Sekiyama et al. 2018, section 4)."""
    return replace(b, size=np.maximum(a.size, b.size))
