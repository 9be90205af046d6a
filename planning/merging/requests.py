"""The requests of a plan or of a step in the form in which they are compared: sizes, and when blocks are freed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...profiler import Profile, StepLog
from ...profiler.events import ALLOCATE, FREE

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

YOUNG = 64
"""Requests; the blocks that live for at most as many say with their ends which line of a loop's body it is."""

NEVER = np.int64(1) << 40
"""A lifetime beyond the step, in requests."""

NONE = np.int64(-1)
"""The number of no request."""


class Frees(NamedTuple):
    """Frees, in their order: the number of the block's request, and before which request each is, int64 (k,)."""

    request: IntArray
    before: IntArray

    @classmethod
    def of_log(cls, log: StepLog, kind: int) -> Frees:
        """Return a step's frees of one kind: `FREE`, of its own blocks, or `FREE_PREVIOUS`, of the step's before it."""
        events = log.events["kind"]
        at = np.flatnonzero(events == kind)
        return cls(log.events["request"][at].astype(np.int64), np.cumsum(events == ALLOCATE)[at])


@dataclass(frozen=True, eq=False)
class Requests:
    """The requests of a plan or of a step; columns (n,), one entry a request.

    Attributes
    ----------
    size
        Bytes, int64.
    due
        Before which request the block is freed, int64: at most its own if it is wrapped, -1 if nobody knows, or it
        escapes.
    wrapped, escaped
        Whether the block is, bool. A step's log does not tell one from the other: all that it does not free is wrapped.
    """

    size: IntArray
    due: IntArray
    wrapped: BoolArray
    escaped: BoolArray

    @classmethod
    def of_profile(cls, profile: Profile) -> Requests:
        """Return a plan's requests."""
        due = np.searchsorted(profile.start, profile.end % max(profile.period, 1)).astype(np.int64)
        return cls(profile.size, np.where(profile.escaped, NONE, due), profile.wrapped, profile.escaped)

    @classmethod
    def of_log(cls, log: StepLog) -> Requests:
        """Return a step's requests."""
        due = np.full(len(log.requested), NONE)
        frees = Frees.of_log(log, FREE)
        due[frees.request] = frees.before
        return cls(log.requested, due, due < 0, np.zeros(len(due), dtype=bool))

    def __len__(self) -> int:
        return len(self.size)

    @property
    def life(self) -> IntArray:
        """Requests that each block lives for, `NEVER` if beyond the step, int64 (n,)."""
        return np.where(self.wrapped | self.escaped, NEVER, self.due - np.arange(len(self)))

    @property
    def end_unknown(self) -> BoolArray:
        """Which wrapped blocks have an end that no step has shown, bool (n,): they are due at their own request."""
        own: BoolArray = self.due == np.arange(len(self))
        return self.wrapped & own

    @property
    def free_signature(self) -> IntArray:
        """What is freed before each request: bit ``i`` for a block asked for ``i + 1`` requests before, int64 (n,).

        Blocks that live for more than `YOUNG` requests have none.
        """
        young = np.flatnonzero((self.life <= YOUNG) & (self.due < len(self)))
        signature = np.zeros(len(self), np.uint64)
        np.bitwise_or.at(signature, self.due[young], np.uint64(1) << (self.life[young] - 1).astype(np.uint64))
        return signature.view(np.int64)
