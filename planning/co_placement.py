"""Co-placement: a plan in agreement with the other plans in the same arena.

A training step leaves its gradients behind, and an evaluation step, a short last batch or another length bucket runs
while they stand. The plans of a pool therefore agree on three things, in this order of importance::

    residents      |gggg|            |gggg|           ranges of other plans' wrapped blocks are left alone ...
    matched        |gggg|            |gggg|           ... but by the wrapped blocks of this plan that equal them,
                                                      which take the same places
    beginnings     [a][bb][c]...     [a][bb][x]...    requests that two steps have in common from the first one on get
                                                      the same offsets: it does not matter which of them is running

Each is a wish, not a need: the replay core serves upstream what does not fit. So if agreeing would cost memory, the
last wish is given up first. A wish is a fixed offset to the packer, and a resident a fixed block that lives throughout.

*Stayers* are no wish: blocks that live in the arena for longer than any plan knows (the optimizer's state, made in the
first step that a loaded plan served). What is planned in their place would go upstream in every step. So a plan that
they obstruct is placed again, with their ranges as residents.

Up to four packings; the wishes take O(b log b) for b blocks in all plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..common.errors import ProblemError
from ..packing import Problem, lower_bound, pack
from ..packing.problem import IntArray
from .plan import Pack, Plan

NO_RANGES: IntArray = np.empty((0, 2), dtype=np.int64)
FREE = -1
LARGE = 1024
"""A wrapped block is stacked if it has this part of the largest one's bytes."""
TOLERANCE = 1.02
"""How much larger than alone a plan may be for the sake of its neighbours, if the arena must grow for it."""


def place_beside(plan: Plan, neighbours: Sequence[Plan], *, arena_bytes: int, packer: Pack = pack) -> Plan:
    """Place a plan, packed alone, again: in agreement with other plans as far as that costs nothing to speak of.

    The most important neighbours come first. Up to `arena_bytes`, which are reserved already, agreement is free. The
    new placement's lower bound and optimality are those of the plan's blocks alone.
    """
    if not neighbours:
        return plan
    limit = max(arena_bytes, int(plan.arena_bytes * TOLERANCE))
    for fixed, residents in _wishes(plan, neighbours):
        placed = _placed(plan, fixed, residents, limit, packer)
        if placed is not None:
            return placed
    return plan


def stack_wrapped(plan: Plan, *, packer: Pack = pack) -> Plan:
    """Place a plan's wrapped blocks on one another, from the arena's beginning on, if that costs nothing.

    In the first step of a plan on a device the blocks that the step before has left live elsewhere, and until they end
    the arena has no memory in their places (core/device/device_pool.hpp): so these places are to be in one run. The
    block that is requested last is at the bottom, so that what is free in the run before is at its other end, next to
    the rest of the arena. Small blocks go where they fit. The plan was packed alone.
    """
    wrapped = np.flatnonzero(plan.profile.wrapped[plan.rows])
    if not len(wrapped):
        return plan
    size = plan.problem.size[wrapped]
    wrapped = wrapped[size * LARGE >= size.max()]
    wrapped = wrapped[np.argsort(-plan.problem.start[wrapped], kind="stable")]
    size = plan.problem.size[wrapped]
    fixed = _no_wish(plan)
    fixed[wrapped] = np.cumsum(size) - size
    return _placed(plan, fixed, NO_RANGES, plan.arena_bytes, packer) or plan


def place_around(
    plan: Plan,
    occupied: IntArray,
    neighbours: Sequence[Plan],
    *,
    arena_bytes: int | None,
    packer: Pack = pack,
) -> Plan | None:
    """Place a plan's blocks again, around what stays in the arena, and next to other plans where possible.

    Return the plan itself where nothing is in its way, and None where it does not fit. Nothing is placed in the ranges
    of `occupied`, int64 (m, 2), begin and end, nor beyond `arena_bytes` (None: it takes what it needs). The most
    important neighbours come first.
    """
    if not is_obstructed(plan, occupied):
        return plan
    for fixed, residents in (*_wishes(plan, neighbours), (_no_wish(plan), NO_RANGES)):
        taken = _union(np.concatenate([residents, occupied]))
        placed = _placed(plan, fixed, taken, arena_bytes, packer)
        if placed is not None:
            return placed
    return None


def is_obstructed(plan: Plan, occupied: IntArray) -> bool:
    """Return whether one of these ranges, int64 (m, 2), overlaps one that the plan needs. O((b + m) log m)."""
    return len(occupied) > 0 and bool(_obstructed(plan, occupied).any())


def obstructed_bytes(plan: Plan, occupied: IntArray) -> int:
    """Return the most bytes that are alive at a time of those blocks that have to be served elsewhere. O(b log b)."""
    rows = np.flatnonzero(_obstructed(plan, occupied))
    start, end, gaps = plan.profile.on_line(plan.rows[rows])
    return lower_bound(Problem(plan.problem.size[rows], start, end, gaps=gaps, alignment=1))


def _obstructed(plan: Plan, occupied: IntArray) -> npt.NDArray[np.bool_]:
    """Return which planned blocks have one of these ranges in their place, bool (k,)."""
    taken = _union(occupied)
    begin = plan.placement.offsets
    at = np.searchsorted(taken[:, 1], begin, side="right")  # the first range that ends beyond
    beyond = np.append(taken[:, 0], np.iinfo(np.int64).max)
    return np.asarray(beyond[at] < begin + plan.problem.size)


def _placed(plan: Plan, fixed: IntArray, residents: IntArray, limit: int | None, packer: Pack) -> Plan | None:
    """Pack with fixed offsets and residents; None where they contradict each other, or it needs more than `limit`."""
    try:
        placement = packer(_with_residents(plan.problem, fixed, residents))
    except ProblemError:
        return None
    offsets = placement.offsets[: len(plan.problem)]
    peak = int((offsets + plan.problem.size).max(initial=0))
    if limit is not None and peak > limit:
        return None
    alone = plan.placement
    status: Literal["optimal", "feasible"] = "optimal" if peak == alone.lower_bound else "feasible"
    return replace(plan, placement=replace(alone, offsets=offsets, peak=peak, status=status))


def _no_wish(plan: Plan) -> IntArray:
    return np.full(len(plan.problem), FREE, dtype=np.int64)


def _wishes(plan: Plan, neighbours: Sequence[Plan]) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield fixed offsets (k,), FREE for none, and resident ranges (m, 2): all wishes first, then fewer and fewer."""
    matched = _no_wish(plan)
    begun = matched.copy()
    for other in neighbours:
        _match_wrapped(plan, other, matched)
        _match_beginning(plan, other, begun)
    ranges = np.concatenate([other.residents for other in neighbours] or [NO_RANGES])
    held = np.flatnonzero(matched != FREE)
    own = np.column_stack([matched[held], matched[held] + plan.problem.size[held]])
    residents = _union(ranges, but=own)
    both = np.where(matched != FREE, matched, begun)
    yield both, residents
    if not np.array_equal(both, matched):
        yield matched, residents
    if len(ranges):
        yield _no_wish(plan), _union(ranges)


def _match_wrapped(plan: Plan, other: Plan, offsets: IntArray) -> None:
    """Give wrapped blocks the places of equal wrapped blocks of another plan, in the order of their requests."""
    theirs: dict[int, list[int]] = {}
    wrapped = np.flatnonzero(other.profile.wrapped[other.rows])
    for size, offset in zip(other.problem.size[wrapped], other.placement.offsets[wrapped], strict=True):
        theirs.setdefault(int(size), []).append(int(offset))
    taken = {int(offset) for offset in offsets[offsets != FREE]}
    for row in np.flatnonzero(plan.profile.wrapped[plan.rows]):
        places = theirs.get(int(plan.problem.size[row]), [])
        while places and offsets[row] == FREE:
            offset = places.pop(0)
            if offset not in taken:
                offsets[row] = offset


def _match_beginning(plan: Plan, other: Plan, offsets: IntArray) -> None:
    """Give the requests that both plans begin with the other's offsets, if no plan before has given them any."""
    n = min(len(plan.profile), len(other.profile))
    differ = np.flatnonzero(plan.profile.size[:n] != other.profile.size[:n])
    common = int(differ[0]) if len(differ) else n
    theirs = np.full(common, FREE, dtype=np.int64)
    inside = other.rows < common
    theirs[other.rows[inside]] = other.placement.offsets[inside]
    mine = np.flatnonzero(plan.rows < common)
    mine = mine[offsets[mine] == FREE]
    offsets[mine] = theirs[plan.rows[mine]]


def _union(ranges: IntArray, but: IntArray = NO_RANGES) -> IntArray:
    """Return what lies in one of some ranges, and in none of others: disjoint ranges, int64 (m, 2). O(m log m)."""
    edges = np.sort(np.concatenate([ranges, but]), axis=None)

    def covers(some: IntArray) -> npt.NDArray[np.bool_]:
        """Return whether one of these ranges covers what lies behind each edge."""
        begun, ended = (np.searchsorted(np.sort(column), edges, side="right") for column in some.T)
        return np.asarray(begun > ended)

    inside = covers(ranges) & ~covers(but)
    return edges[np.diff(inside, prepend=False)].reshape(-1, 2)


def _with_residents(problem: Problem, fixed: IntArray, residents: IntArray) -> Problem:
    """Add the residents to a problem, as fixed blocks that live throughout, after its own blocks."""
    m = len(residents)
    first, last = int(problem.start.min(initial=0)), int(problem.end.max(initial=1))

    def column(own: npt.ArrayLike, added: npt.ArrayLike) -> IntArray:
        return np.concatenate([own, added]).astype(np.int64)

    return Problem(
        column(problem.size, residents[:, 1] - residents[:, 0]),
        column(problem.start, np.full(m, first)),
        column(problem.end, np.full(m, last)),
        gaps=problem.gaps,
        alignment=column(problem.alignment, np.ones(m)),
        fixed=column(fixed, residents[:, 0]),
    )
