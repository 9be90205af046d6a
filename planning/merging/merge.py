"""Reoptimization if the structure changes from step to step: a plan and a step become one plan for both.

Sentences have other lengths in each batch, so loops run longer or shorter, and what they keep for the backward pass
is now there and now not. The step is matched with the plan, request by request (matching.py); the merged plan has all
requests of both, with the larger of the sizes and lifetimes that contain both::

    plan     a0 b0 b1 b2 b3 c0           each b is freed by a d, in reverse
    step     a0 b0 b1 x0 c0
    merged   a0 b0 b1 x0 b2 b3 c0        a step may ask for any of them

A shorter step leaves slots of it unused, so it needs no more memory than the longest and largest step that could be put
together of those seen, and a little room for larger ones (`Merged.room`). What no step asks for any more is forgotten.
Where in the plan a step is, the replay core finds out.

O(cells of the match + n log n) for n requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...profiler import Profile, StepLog
from ...profiler.events import FREE, FREE_PREVIOUS
from ...profiler.profile import ESCAPED
from .matching import LANDMARK, Match, match_step
from .merged import Merged
from .requests import NONE, BoolArray, Frees, IntArray, Requests

SURE = 6
"""Steps that agree on where a block is freed, beyond which more of them count for nothing."""

FORGET = 8
"""Steps in a row that do not ask for a request before a merged plan forgets it."""

ALIKE = 0.6
"""Share of the requests of the shorter of the two, a step and a plan, that must be in both for them to be merged."""


def merge(
    profile: Profile,
    known: Merged | None,
    log: StepLog,
    following: StepLog,
    step_aside: Callable[[], object] = lambda: None,
) -> tuple[Profile, Merged] | None:
    """Merge a plan's profile with a step of another structure.

    Parameters
    ----------
    profile
        The plan's; on one stream.
    known
        What is known of its steps; None if it was made of one.
    log, following
        The step, and the one after it, which shows where its wrapped blocks end.
    step_aside
        Called between pieces of the work that hold the GIL for a millisecond or less, to let other threads run.

    Returns
    -------
    The merged profile and what is known of it; None if the two have too little in common, or are too long.
    """
    streams = np.unique(np.concatenate([profile.stream, log.streams]))
    if len(streams) != 1 or not len(profile) or not len(log.requested):
        return None
    plan, step = Requests.of_profile(profile), Requests.of_log(log)
    if known is None:
        known = Merged.of_one_step(plan)
    step_aside()
    match = match_step(plan, known, step, Frees.of_log(log, FREE), step_aside)
    if match is None or match.found < ALIKE * min(len(plan), len(step)):
        return None
    step_aside()
    slots = _Slots.of(match, len(plan))
    lives = _Lives.of_plan(plan, known, slots)
    lives.contain_step(step, slots)
    step_aside()
    if plan.end_unknown.any():
        later = Requests.of_log(following)
        ends = match_step(plan, known, later, Frees.of_log(following, FREE), step_aside)
        step_aside()
        if ends is not None:
            lives.contain_ends(Frees.of_log(following, FREE_PREVIOUS), ends, slots)
    lives.close()
    step_aside()
    both = _known_of_both(known, step, slots, lives.trust)
    keep = both.idle <= FORGET
    return _profile(slots.largest(plan, step), lives, keep, int(streams[0])), both.rows(keep)


@dataclass(frozen=True, eq=False)
class _Slots:
    """Where the requests of a plan (n,) and of a step (m,) go in the merged plan, of `total` requests."""

    plan_at: IntArray
    step_at: IntArray
    total: int

    @classmethod
    def of(cls, match: Match, n: int) -> _Slots:
        """Put what the plan lacks right after the request before it."""
        number = match.number
        common, lacking = number >= 0, np.flatnonzero(number < 0)
        before = match.passed[lacking] + 1
        plan_at = np.arange(n) + np.cumsum(np.bincount(before, minlength=n + 1))[:n]
        step_at = np.empty(len(number), dtype=np.int64)
        step_at[common] = plan_at[number[common]]
        step_at[lacking] = before + np.arange(len(lacking))
        return cls(plan_at, step_at, n + len(lacking))

    def column(self, of_plan: IntArray, of_step: IntArray) -> IntArray:
        """Return a column of the merged plan, int64 (total,); of requests that both have, the plan's entries."""
        column = np.empty(self.total, dtype=np.int64)
        column[self.step_at] = of_step
        column[self.plan_at] = of_plan
        return column

    def largest(self, plan: Requests, step: Requests) -> IntArray:
        """Return the larger of both sizes, int64 (total,)."""
        size = self.column(plan.size, step.size)
        size[self.step_at] = np.maximum(size[self.step_at], step.size)
        return size

    def gaps(self, at: IntArray, due: IntArray) -> tuple[IntArray, IntArray]:
        """Return between which merged requests frees fall that stand before requests `due` of the plan or the step.

        There may be others of the merged plan in between. `at` is `plan_at` or `step_at`.
        """
        return np.concatenate([[0], at + 1])[due], np.concatenate([at, [self.total]])[due]


def _known_of_both(known: Merged, step: Requests, slots: _Slots, trust: IntArray) -> Merged:
    """Return what is known of the plan's steps and this one."""
    least = slots.column(known.least, step.size)
    least[slots.step_at] = np.minimum(least[slots.step_at], step.size)
    idle = slots.column(known.idle + 1, np.zeros(len(step), np.int64))
    idle[slots.step_at] = 0
    life = slots.column(known.life, step.life)
    return Merged(least, trust, life, slots.column(known.free_signature, step.free_signature), idle)


@dataclass(eq=False)
class _Lives:
    """When the merged plan's blocks are freed, as more and more of it is known; columns (total,).

    Attributes
    ----------
    low, high
        Before which request the block is freed, the first and the last that agree with all steps, int64; -1 if
        unknown. The first is taken.
    trust
        As in `Merged`.
    wrapped, escaped
        bool.
    """

    low: IntArray
    high: IntArray
    trust: IntArray
    wrapped: BoolArray
    escaped: BoolArray

    @classmethod
    def of_plan(cls, plan: Requests, known: Merged, slots: _Slots) -> _Lives:
        """Return what the plan knows."""
        at, total = slots.plan_at, slots.total
        wrapped, escaped = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
        low, high, trust = np.full(total, NONE), np.full(total, NONE), np.ones(total, dtype=np.int64)
        wrapped[at], escaped[at], trust[at] = plan.wrapped, plan.escaped, known.trust
        seen = np.flatnonzero((plan.due >= 0) & ~plan.end_unknown)
        low[at[seen]], high[at[seen]] = slots.gaps(at, plan.due[seen])
        return cls(low, high, trust, wrapped, escaped)

    def contain_step(self, step: Requests, slots: _Slots) -> None:
        """Let blocks live until the step has freed them."""
        self.wrapped[slots.step_at] |= step.wrapped
        self.trust[self.wrapped] = 0
        freed = np.flatnonzero(~step.wrapped)
        block = slots.step_at[freed]
        self._contain(block, *slots.gaps(slots.step_at, step.due[freed]), ~self.wrapped[block])

    def contain_ends(self, frees: Frees, match: Match, slots: _Slots) -> None:
        """Let wrapped blocks live until the step after theirs, which is matched with the plan, has freed them."""
        known = frees.request < len(slots.step_at)
        block = slots.step_at[frees.request[known]]
        passed = np.concatenate([[NONE], match.passed])[frees.before[known]]
        due = np.where(passed < 0, 0, slots.plan_at[passed] + 1)
        self._contain(block, due, due, self.wrapped[block] & (due <= block))

    def _contain(self, block: IntArray, first: IntArray, last: IntArray, which: BoolArray) -> None:
        """Let blocks live until the later of two frees, and trust their place more, or less if it cannot be the same.

        One step that contradicts a landmark does not move it: more likely it was matched wrongly there.
        """
        low, high, trust = self.low, self.high, self.trust
        block, first, last = block[which], first[which], last[which]
        known = low[block] >= 0
        apart = known & ((first > high[block]) | (low[block] > last))
        doubted = apart & (trust[block] > 0) & (low[block] - block > LANDMARK)
        trust[block] = np.clip(trust[block] + np.where(apart, -2, known), 0, SURE)
        block, first, last, apart = block[~doubted], first[~doubted], last[~doubted], apart[~doubted]
        later, earlier = np.maximum(high[block], last), np.minimum(high[block], last)
        high[block] = np.where(low[block] < 0, last, np.where(apart, later, earlier))
        low[block] = np.maximum(low[block], first)

    def close(self) -> None:
        """Take blocks as wrapped, and alive until their own request comes again, if no end of theirs makes sense."""
        own = np.arange(len(self.low))
        unknown = (self.low < 0) | (self.wrapped & (self.low > own)) | (~self.wrapped & (self.low <= own))
        self.wrapped |= unknown
        self.low[unknown] = own[unknown]
        self.trust[self.wrapped] = 0


def _profile(size: IntArray, lives: _Lives, keep: BoolArray, stream: int) -> Profile:
    """Make a profile of the requests that are kept, bool (total,)."""
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    due = kept_before[lives.low[keep]]
    escaped = lives.escaped[keep]
    n, planned = len(due), np.flatnonzero(~escaped)
    where = np.concatenate([np.arange(n), due[planned]])
    is_free = np.repeat([False, True], [n, len(planned)])
    order = np.lexsort((~is_free, where))
    tick = np.empty(len(order), dtype=np.int64)
    tick[order] = np.arange(len(order))
    end = np.full(n, ESCAPED, dtype=np.int64)
    end[planned] = tick[n:]
    end[lives.wrapped[keep] & ~escaped] += len(order)
    return Profile(size[keep], tick[:n], end, np.full(n, stream, dtype=np.int64), period=len(order))
