"""Reoptimization where the structure changes from step to step: a plan and a step become one plan for both.

Sentences have other lengths in each batch, so loops run longer or shorter, and what they keep for the backward pass
is now there and now not. The step is aligned with the plan, request by request; the merged plan has all requests of
both, with the larger of the sizes and lifetimes that contain both::

    plan     a0 b0 b1 b2 b3 c0           each b is freed by a d, in reverse
    step     a0 b0 b1 x0 c0
    merged   a0 b0 b1 x0 b2 b3 c0        a step may ask for any of them

A shorter step leaves holes in it, so it needs no more memory than the longest and largest step that could be put
together of those seen, and a little room for larger ones (`Merged.room`). What no step asks for any more is forgotten.
Where in the plan a step is, allocator/core/tracker.hpp finds out.

Requests are told apart by the number of requests that their blocks live for, as that was when they were first seen: it
says which line of a loop's body asked, whatever the sizes. Lifetimes in the merged plan would not do: they grow as
requests are put in between.

Two alignments (allocator/core/realign.hpp): first of the few blocks that live for long, from one end to the other;
then of all, in a band around it. The long-lived blocks are freed where a loop runs back, and the plan says where its
own loop frees them: so they vote, and the first alignment is made anew, near to where it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..profiler import Profile, StepLog
from ..profiler.profile import ESCAPED
from ..profiler.steps import ALLOCATE, FREE, FREE_PREVIOUS
from ._core import realign
from .planner import let_others_run

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

LONG = 64
"""Requests; blocks that live for as many are aligned first."""

YOUNG = 64
"""Requests; the blocks that live for at most as many say with their ends which line of a loop's body it is."""

LANDMARK = 256
"""Requests; blocks that live for more say where a step is. Those that pass from one iteration to the next do not."""

SURE = 6
"""Steps that agree on where a block is freed, beyond which more of them count for nothing."""

FORGET = 8
"""Steps in a row that do not ask for a request before a merged plan forgets it."""

ROOM = 8
"""A slot has room for sizes beyond the largest: one part in so many of the span between them and the smallest."""

WIDTH = 100
"""Requests to either side of an alignment among which the next one looks."""

CELLS = 1 << 26
"""Most cells of one alignment, each a byte; a step that needs more is recorded anew."""

ALIKE = 0.6
"""Share of the requests of the shorter of the two, a step and a plan, that must be in both for them to be merged."""

NEVER = np.int64(1) << 40
_NONE = np.int64(-1)


@dataclass(frozen=True, eq=False)
class Merged:
    """What is known of the steps that a merged plan stands for, beside its profile; columns (n,), one entry a request.

    Attributes
    ----------
    least
        The smallest size that was asked for; the profile has the largest.
    trust
        How far steps agree on where the block is freed: one more for each that does, up to `SURE`, two less for each
        that does not. Where it is above 0 the block is a landmark.
    life
        Requests that the block lived for when it was first seen, `NEVER` if beyond the step.
    sign
        What was freed before the request when it was first seen: bit ``i`` for a block that had been asked for
        ``i + 1`` requests before.
    idle
        Steps in a row that were merged and had no such request.
    """

    least: IntArray
    trust: IntArray
    life: IntArray
    sign: IntArray
    idle: IntArray

    def room(self, profile: Profile) -> IntArray:
        """Return the bytes that each slot has beyond the largest size that was seen, int64 (n,)."""
        return (profile.size - np.clip(self.least, 0, profile.size)) // ROOM


def merge(
    profile: Profile, known: Merged | None, log: StepLog, following: StepLog
) -> tuple[Profile, Merged] | None:
    """Merge a plan's profile with a step of another structure.

    Parameters
    ----------
    profile
        The plan's; on one stream.
    known
        What is known of its steps; None where it was made of one.
    log, following
        The step, and the one after it, which shows where its wrapped blocks end.

    Returns
    -------
    The merged profile and what is known of it; None where the two have too little in common, or are too long.
    """
    streams = np.unique(np.concatenate([profile.stream, log.streams]))
    if len(streams) != 1 or not len(profile) or not len(log.requested):
        return None
    plan = _Lives.of_profile(profile)
    if known is None:
        known = Merged(
            profile.size,
            (~plan.wrapped).astype(np.int64),
            np.where(plan.wrapped, NEVER, plan.due - np.arange(len(profile))),
            plan.signs,
            np.zeros(len(profile), np.int64),
        )
    step = _Lives.of_log(log)
    number = _align(profile, known, plan, log, step)
    if number is None or (number >= 0).sum() < ALIKE * min(len(profile), len(number)):
        return None
    let_others_run()
    ends = None
    if (
        plan.wrapped & (plan.due == np.arange(len(profile)))
    ).any():  # a wrapped block whose end nobody has seen
        ends = _align(profile, known, plan, following, _Lives.of_log(following))
        let_others_run()

    # Where the requests of both go: what the plan lacks comes right after the request before it.
    n = len(profile)
    lacking = np.flatnonzero(number < 0)
    before = np.maximum.accumulate(number)[lacking] + 1
    plan_at = np.arange(n) + np.cumsum(np.bincount(before, minlength=n + 1))[:n]
    step_at = np.empty(len(number), dtype=np.int64)
    step_at[number >= 0] = plan_at[number[number >= 0]]
    step_at[lacking] = before + np.arange(len(lacking))
    total = n + len(lacking)

    size, least, life = np.zeros(total, np.int64), np.full(total, NEVER), np.full(total, _NONE)
    life[step_at] = step.life
    life[plan_at] = known.life
    sign = np.zeros(total, np.int64)
    sign[step_at] = step.signs
    sign[plan_at] = known.sign
    idle = np.zeros(total, np.int64)
    idle[plan_at] = known.idle + 1
    idle[step_at] = 0
    size[plan_at], least[plan_at] = profile.size, known.least
    np.maximum.at(size, step_at, log.requested)
    np.minimum.at(least, step_at, log.requested)

    # A free falls between two requests; in the merged plan there may be others between these.
    low = np.full(total, _NONE)
    high, trust = low.copy(), np.ones(total, dtype=np.int64)
    wrapped, escaped = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
    wrapped[plan_at], escaped[plan_at], trust[plan_at] = plan.wrapped, plan.escaped, known.trust
    seen = np.flatnonzero((plan.due >= 0) & ~(plan.wrapped & (plan.due == np.arange(n))))
    low[plan_at[seen]], high[plan_at[seen]] = _gaps(plan_at, total, plan.due[seen])
    wrapped[step_at] |= step.wrapped
    trust[wrapped] = 0
    freed = np.flatnonzero(~step.wrapped)
    _contain(
        low, high, trust, step_at[freed], *_gaps(step_at, total, step.due[freed]), ~wrapped[step_at[freed]]
    )
    if ends is not None:
        who, gap = _frees(following, FREE_PREVIOUS)
        inside = who < len(step_at)
        who, gap = who[inside], gap[inside]
        passed = np.concatenate([[_NONE], np.maximum.accumulate(ends)])[gap]
        due = np.where(passed < 0, 0, plan_at[passed] + 1)
        _contain(low, high, trust, step_at[who], due, due, wrapped[step_at[who]] & (due <= step_at[who]))
    own = np.arange(total)
    unknown = (low < 0) | (wrapped & (low > own)) | (~wrapped & (low <= own))
    wrapped |= unknown
    low[unknown] = own[unknown]
    keep = idle <= FORGET
    low = np.concatenate([[0], np.cumsum(keep)])[low]
    merged = _profile(size[keep], low[keep], (wrapped & ~escaped)[keep], escaped[keep], int(streams[0]))
    trust[wrapped] = 0
    return merged, Merged(least[keep], trust[keep], life[keep], sign[keep], idle[keep])


@dataclass(frozen=True)
class _Lives:
    """Per request (n,): before which request its block is freed, at most its own if it is wrapped; -1 if it escapes."""

    due: IntArray
    wrapped: BoolArray
    escaped: BoolArray

    @classmethod
    def of_profile(cls, profile: Profile) -> _Lives:
        due = np.searchsorted(profile.start, profile.end % max(profile.period, 1)).astype(np.int64)
        return cls(np.where(profile.escaped, _NONE, due), profile.wrapped, profile.escaped)

    @classmethod
    def of_log(cls, log: StepLog) -> _Lives:
        due = np.full(len(log.requested), _NONE)
        who, gap = _frees(log, FREE)
        due[who] = gap
        return cls(due, due < 0, np.zeros(len(due), dtype=bool))

    @property
    def life(self) -> IntArray:
        return np.where(self.wrapped | self.escaped, NEVER, self.due - np.arange(len(self.due)))

    @property
    def signs(self) -> IntArray:
        """Per request the ages of the young blocks that are freed before it; see `Merged.sign`."""
        young = np.flatnonzero((self.life <= YOUNG) & (self.due < len(self.due)))
        sign = np.zeros(len(self.due), np.uint64)
        np.bitwise_or.at(sign, self.due[young], np.uint64(1) << (self.life[young] - 1).astype(np.uint64))
        return sign.view(np.int64)


def _frees(log: StepLog, kind: int) -> tuple[IntArray, IntArray]:
    """Return the request numbers of the blocks that are freed, and before which request of the log each is, (k,)."""
    at = np.flatnonzero(log.events["kind"] == kind)
    return log.events["request"][at].astype(np.int64), np.cumsum(log.events["kind"] == ALLOCATE)[at]


def _gaps(at: IntArray, total: int, gap: IntArray) -> tuple[IntArray, IntArray]:
    """Return between which merged requests a free falls that stands before request `gap` of one of the two."""
    return np.concatenate([[0], at + 1])[gap], np.concatenate([at, [total]])[gap]


def _contain(
    low: IntArray,
    high: IntArray,
    trust: IntArray,
    who: IntArray,
    first: IntArray,
    last: IntArray,
    which: BoolArray,
) -> None:
    """Let blocks live until the later of two frees, and trust their place more, or less if it cannot be the same.

    One step that contradicts a landmark does not move it: more likely it was aligned wrongly there.
    """
    who, first, last = who[which], first[which], last[which]
    known = low[who] >= 0
    apart = known & ((first > high[who]) | (low[who] > last))
    doubted = apart & (trust[who] > 0) & (low[who] - who > LANDMARK)
    trust[who] = np.clip(trust[who] + np.where(apart, -2, known), 0, SURE)
    who, first, last, apart = who[~doubted], first[~doubted], last[~doubted], apart[~doubted]
    high[who] = np.where(
        low[who] < 0, last, np.where(apart, np.maximum(high[who], last), np.minimum(high[who], last))
    )
    low[who] = np.maximum(low[who], first)


def _profile(size: IntArray, due: IntArray, wrapped: BoolArray, escaped: BoolArray, stream: int) -> Profile:
    """Make a profile of blocks that are freed before request `due` each."""
    n = len(size)
    planned = np.flatnonzero(~escaped)
    where = np.concatenate([np.arange(n), due[planned]])
    is_free = np.repeat([False, True], [n, len(planned)])
    order = np.lexsort((~is_free, where))
    tick = np.empty(len(order), dtype=np.int64)
    tick[order] = np.arange(len(order))
    end = np.full(n, ESCAPED, dtype=np.int64)
    end[planned] = tick[n:]
    end[wrapped] += len(order)
    return Profile(size, tick[:n], end, np.full(n, stream, dtype=np.int64), period=len(order))


# ----------------------------------------------------------------------------------------------------------- alignment


def _align(profile: Profile, known: Merged, plan: _Lives, log: StepLog, step: _Lives) -> IntArray | None:
    """Return each request's number in the plan, increasing, -1 for none, int64 (m,); None where that takes too much."""
    plan_kind, step_kind = _kind(known.life), _kind(step.life)
    size, n, m = log.requested, len(profile), len(log.requested)

    voters, gap = _frees(log, FREE)
    voters, gap = voters[step.life[voters] > LANDMARK], gap[step.life[voters] > LANDMARK]
    number = np.full(m, _NONE)

    def votes(rows: IntArray, columns: IntArray) -> IntArray:
        """Return where the frees of long-lived blocks say that the requests after them are, by row."""
        slot = number[voters]
        counts = (slot >= 0) & (known.trust[slot] > 0)
        column, row = np.searchsorted(columns, gap[counts]), np.searchsorted(rows, plan.due[slot[counts]])
        inside = (column < len(columns)) & (row < len(rows))
        vote = np.full(len(columns), _NONE)
        vote[column[inside]] = row[inside]
        return vote

    # The long-lived ones alone: there, one says what its neighbours are.
    rows, columns = np.flatnonzero(known.life >= LONG), np.flatnonzero(step.life >= LONG)
    if len(rows) * len(columns) > CELLS:
        return None
    least, most = known.least[rows], profile.size[rows]
    band = np.zeros(len(rows) + 1, np.int64), np.full(len(rows) + 1, len(columns), np.int64)
    for _ in range(2):
        vote = votes(rows, columns)
        found = realign(least, most, plan_kind[rows], size[columns], step_kind[columns], vote, *band)
        pairs = found >= 0
        number[columns] = _NONE
        number[columns[pairs]] = rows[found[pairs]]
        band = _band(found, len(rows), len(columns))
        let_others_run()

    band = _band(number, n, m)
    if int((band[1] - band[0] + 1).sum()) > CELLS:
        return None
    vote = votes(np.arange(n), np.arange(m))
    return realign(known.least, profile.size, plan_kind, size, step_kind, vote, *band)


def _kind(life: IntArray) -> IntArray:
    """Tell short lifetimes, in requests, from each other, from longer ones and from those beyond the step."""
    return np.select([life <= 6, life < LONG, life < NEVER], [life, 7, 8], 9).astype(np.int64)


def _band(number: IntArray, n: int, m: int) -> tuple[IntArray, IntArray]:
    """Return the band around the pairs of an alignment, the rectangles between them included, two int64 (n + 1,)."""
    columns = np.flatnonzero(number >= 0)
    rows = np.concatenate([[-1], number[columns], [n]])
    columns = np.concatenate([[-1], columns, [m]])
    after = np.searchsorted(rows, np.arange(n + 1))
    first = np.maximum(columns[np.maximum(after - 1, 0)] + 1 - WIDTH, 0)
    last = np.minimum(columns[after] + WIDTH, m)
    first[0] = 0
    last[n] = m
    return np.minimum.accumulate(first[::-1])[::-1].copy(), np.maximum.accumulate(last)
