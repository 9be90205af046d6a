"""From the logs of two equal steps to the profile of one.

A step's log holds its requests in order, and the frees between them: of blocks of the same step, and of blocks of the
step before. Two steps that ask for the same sizes in the same order are *equal*; the second one shows where the wrapped
blocks of the first end. The profile's clock runs round the circle of one step::

    requests      a0      a1              a2
    gaps       0       1           2           3        between which requests a free falls
    events        a0  f9  a1  f0          a2            f9: free of the previous step's request 9, as seen in the
    ticks      0      1   2   3    4                    second step

Only the order of requests matters for safety and for packing (blocks conflict when they are alive at one request), so a
free that moves within its gap from step to step changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .profile import ESCAPED, Profile

IntArray = npt.NDArray[np.int64]

# Mirrors `Event` in profiler/core/step_recorder.hpp.
EVENT_DTYPE = np.dtype(
    [("time_ns", "i8"), ("size", "i8"), ("stream", "i8"), ("request", "u4"), ("kind", "i1")], align=True
)
ALLOCATE, FREE, FREE_PREVIOUS = 0, 1, 2

_NEVER = np.int64(-1)


@dataclass(frozen=True)
class StepLog:
    """The events of one step, as a recorder saw them.

    Attributes
    ----------
    events
        Structured array (k,) of `EVENT_DTYPE`, in the order in which they happened.
    """

    events: npt.NDArray[np.void]

    @property
    def requested(self) -> IntArray:
        """Bytes of each request, int64 (n,)."""
        return np.ascontiguousarray(self.events["size"][self.events["kind"] == ALLOCATE])

    @property
    def streams(self) -> IntArray:
        """Stream of each request, int64 (n,)."""
        return np.ascontiguousarray(self.events["stream"][self.events["kind"] == ALLOCATE])

    def equals(self, other: StepLog) -> bool:
        """Whether both steps asked for the same sizes, on the same streams, in the same order."""
        return np.array_equal(self.requested, other.requested) and np.array_equal(self.streams, other.streams)


@dataclass(frozen=True)
class _Frees:
    """Frees of one kind, per request number (n,): the gap, the position in the log, the wall clock; -1 for none."""

    gap: IntArray
    position: IntArray
    time_ns: IntArray

    @classmethod
    def of(cls, log: StepLog, kind: int, n: int) -> _Frees:
        gap, position, time_ns = (np.full(n, _NEVER) for _ in range(3))
        gaps = np.cumsum(log.events["kind"] == ALLOCATE)
        at = np.flatnonzero((log.events["kind"] == kind) & (log.events["request"] < n))
        request = log.events["request"][at]
        gap[request] = gaps[at]
        position[request] = at
        time_ns[request] = log.events["time_ns"][at]
        return cls(gap, position, time_ns)


def profile_steps(first: StepLog, second: StepLog) -> Profile:
    """Build the profile of a step from its log and the log of the equal step that follows.

    A block freed within the step in both logs lives until the later of the two. A block that would still be alive when
    the following step asks for its successor cannot have one place in a repeating plan: it counts as escaped.

    Parameters
    ----------
    first, second
        Consecutive steps, ``first.equals(second)``.

    Returns
    -------
    Profile
        One block per request of the step, in order.

    Raises
    ------
    ValueError
        The steps are not equal.
    """
    if not first.equals(second):
        raise ValueError("the second step does not repeat the first one's requests")
    size, stream = first.requested, first.streams
    n = len(size)
    own = _Frees.of(first, FREE, n)
    again = _Frees.of(second, FREE, n)
    following = _Frees.of(second, FREE_PREVIOUS, n)

    request = np.arange(n)
    freed = own.gap >= 0
    wrapped = ~freed & (following.gap >= 0) & (following.gap <= request)
    gap = np.where(freed, np.maximum(own.gap, again.gap), np.where(wrapped, following.gap, _NEVER))
    planned = freed | wrapped

    # The events of the circle, sorted by gap; within a gap frees come before the request that closes it.
    who = np.concatenate([request, request[planned]])
    is_free = np.repeat([False, True], [n, int(planned.sum())])
    where = np.concatenate([request, gap[planned]])
    position = np.concatenate([request, np.where(freed, own.position, following.position)[planned]])
    order = np.lexsort((position, ~is_free, where))
    tick = np.empty(len(order), dtype=np.int64)
    tick[order] = np.arange(len(order))
    period = len(order)

    start = tick[:n].copy()
    end = np.full(n, ESCAPED)
    end[who[n:]] = tick[n:]
    end[wrapped] += period
    free_ns = np.where(freed, own.time_ns, np.where(wrapped, following.time_ns, _NEVER))
    alloc_ns = np.ascontiguousarray(first.events["time_ns"][first.events["kind"] == ALLOCATE])
    return Profile(
        size=size, start=start, end=end, stream=stream, alloc_ns=alloc_ns, free_ns=free_ns, period=period
    )
