"""A plan in the form in which the replay core reads it (allocator/core/replay/plan.hpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ._core import CorePlan

if TYPE_CHECKING:
    from ..planning import Plan


def core_plan(plan: Plan, tag: int) -> CorePlan:
    """Return the replay core's form of a plan, under this name, which is not 0. O(n log n)."""
    profile, rows = plan.profile, plan.rows
    capacity = profile.size.copy()
    capacity[rows] = plan.problem.size
    # A block is due at the number of requests that come before its free.
    freed_at = profile.end[rows] % max(profile.period, 1)
    due_at = np.searchsorted(profile.start, freed_at)
    due = rows[np.argsort(due_at, kind="stable")]
    due_begin = np.searchsorted(np.sort(due_at), np.arange(len(profile) + 2)).astype(np.int64)
    columns = plan.offset, profile.size, capacity, profile.stream, due_begin, due
    return CorePlan(*columns, plan.arena_bytes, tag, plan.steps)
