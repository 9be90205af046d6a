"""The log of a whole program: its requests in order, and the ends of their blocks between them.

::

    requests     0 1 2 3 | 4 5 6 7 | ...  ...| 80 81 82 83 |       segments, as the recorder cut them; of a long program
    number         0 1 2 3 4 5 6 7             8  9 10 11          some are missing, and `gaps` has the 8

A part of it is made into the log of a step, with the steps before it that its frees belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .events import ALLOCATE, EVENT_DTYPE, FREE, IntArray
from .recorded_step import Recorded
from .steps import MOST_TURNS

UNKNOWN = -1


@dataclass(frozen=True)
class ProgramLog:
    """Requests, of which n are kept, and events of a program.

    Attributes
    ----------
    events
        Structured array (k,) of `EVENT_DTYPE`; `request` is the number of a block's request among those kept. Ends of
        blocks whose requests are not kept are left out.
    site
        By request, as `CallSites` numbers them, int64 (n,); `UNKNOWN` where none is known.
    alive
        By request, the most bytes that the whole program had alive from it to the next, int64 (n,).
    gaps
        Numbers of the requests before which some are missing.
    before
        By request, how many there were before it, kept or not, int64 (n,).
    """

    events: npt.NDArray[np.void]
    site: IntArray
    alive: IntArray
    gaps: tuple[int, ...]
    before: IntArray

    @classmethod
    def of_segments(cls, segments: list[tuple[tuple[Any, ...], int]]) -> ProgramLog:
        """Put together what `StepWatch.segments` returns, and leave that empty: it may be large.

        A segment's frees tell how many segments ago a block was requested.
        """
        first: dict[int, int] = {}  # by a segment's number among all: the number of its first request here
        events, site, alive, before, gaps = [], [], [], [], []
        length = n = 0
        while segments:
            (log, _, sites, most_alive, _), start = segments.pop(0)
            length = length or len(most_alive) or 1  # all are as long, but the last one
            which = start // length
            if n and which - 1 not in first:
                gaps.append(n)
            first[which] = n
            kind = log["kind"].astype(np.int64)
            age = np.where(kind == ALLOCATE, 0, kind - FREE)
            base = np.array([first.get(which - ago, UNKNOWN) for ago in range(int(age.max(initial=0)) + 1)])
            known = base[age] != UNKNOWN
            part = log[known].copy()
            part["request"] = (part["request"] + base[age][known]).astype(np.uint32)
            part["kind"] = np.minimum(part["kind"], FREE)
            events.append(part)
            count = len(most_alive)
            site.append(sites.astype(np.int64) if len(sites) == count else np.full(count, UNKNOWN))
            alive.append(most_alive)
            before.append(start + np.arange(count))
            n += count
        empty = np.empty(0, dtype=np.int64)
        return cls(
            np.concatenate(events) if events else np.empty(0, dtype=EVENT_DTYPE),
            np.concatenate([empty, *site]),
            np.concatenate([empty, *alive]),
            tuple(gaps),
            np.concatenate([empty, *before]),
        )

    def __len__(self) -> int:
        """Return the requests that are kept."""
        return len(self.site)

    @cached_property
    def position(self) -> IntArray:
        """The event of each request, int64 (n,)."""
        return np.flatnonzero(self.events["kind"] == ALLOCATE)

    @cached_property
    def size(self) -> IntArray:
        """Bytes of each request, int64 (n,)."""
        return np.ascontiguousarray(self.events["size"][self.position])

    @cached_property
    def now(self) -> IntArray:
        """The last request at or before each event, int64 (k,)."""
        return np.cumsum(self.events["kind"] == ALLOCATE) - 1

    @cached_property
    def symbol(self) -> npt.NDArray[np.uint64]:
        """A hash of each request's size and stream, uint64 (n,): equal ones are the same request."""
        stream = self.events["stream"][self.position].astype(np.uint64)
        mixed = (self.size.astype(np.uint64) ^ (stream << np.uint64(17))) * np.uint64(0x9E3779B97F4A7C15)
        name: npt.NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xD6E8FEB86659FD93)
        return name

    def signatures(self, starts: IntArray, ends: IntArray) -> npt.NDArray[np.uint64]:
        """Return a hash of the requests from each start to its end, in order, uint64 (m,).

        One polynomial over all requests, of which each part is a difference: O(n + m).
        """
        n = len(self)
        base = np.uint64(0x9E3779B97F4A7C15 | 1)
        with np.errstate(over="ignore"):
            # Sum of symbol[i] * base^-i, times base^start: base is odd, so it has an inverse modulo 2^64.
            inverse = np.uint64(pow(int(base), -1, 1 << 64))
            powers = np.cumprod(np.concatenate([[np.uint64(1)], np.full(n, inverse)]).astype(np.uint64))
            total = np.concatenate([[np.uint64(0)], np.cumsum(self.symbol * powers[:n], dtype=np.uint64)])
            up = np.cumprod(np.concatenate([[np.uint64(1)], np.full(n, base)]).astype(np.uint64))
            length = (ends - starts).astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
            hashed: npt.NDArray[np.uint64] = (total[ends] - total[starts]) * up[starts] ^ length
            return hashed

    def recorded(self, starts: Sequence[int], end: int) -> Recorded:
        """Return the step from the last of some starts to an end, after steps at the other starts."""
        part = slice(starts[-1], end)
        first, last = (
            int(self.position[at]) if at < len(self) else len(self.events) for at in (starts[-1], end)
        )
        events = self.events[first:last].copy()
        request = events["request"].astype(np.int64)
        edges = np.asarray(starts[-1 - MOST_TURNS :], dtype=np.int64)
        which = np.searchsorted(edges, request, side="right") - 1  # -1: before all of these steps
        is_free = events["kind"] != ALLOCATE
        kept = which >= 0
        age = np.where(is_free, len(edges) - 1 - which, 0)
        events["kind"] = np.where(is_free, FREE + age, ALLOCATE)
        events["request"] = np.where(kept, request - edges[which], 0).astype(np.uint32)
        return Recorded(events[kept], True, self.site[part].astype(np.int32), self.alive[part], 0)
