"""Make the profile of a step from its log and the log of the step after it.

A step's log holds its requests in order, and the frees between them: of blocks of the same step, and of blocks of the
steps before. Two steps that request the same sizes in the same order are *equal*; the second one shows where the
wrapped blocks of the first end. The profile's clock runs round the circle of one step::

    requests      a0      a1              a2
    gaps       0       1           2           3        between which requests a free falls
    events        a0  f9  a1  f0          a2            f9: free of the previous step's request 9, as seen in the
    ticks      0      1   2   3    4                    second step

Only the order of requests matters for safety and for packing (blocks conflict when they are alive at one request), so a
free that moves within its gap from step to step changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .events import ALLOCATE, FREE, FREE_PREVIOUS, IntArray
from .profile import ESCAPED, UNKNOWN_NS, Profile

MOST_TURNS = 8
"""Steps that one plan may cover."""

OVERLAPPING = 0.01
"""Share of a step's blocks, or bytes, that may overlap their successors before several steps are planned together."""

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

    @cached_property
    def requested(self) -> IntArray:
        """Bytes of each request, int64 (n,)."""
        return np.ascontiguousarray(self.events["size"][self.events["kind"] == ALLOCATE])

    @cached_property
    def streams(self) -> IntArray:
        """Stream of each request, int64 (n,)."""
        return np.ascontiguousarray(self.events["stream"][self.events["kind"] == ALLOCATE])

    def equals(self, other: StepLog) -> bool:
        """Whether both steps requested the same sizes, on the same streams, in the same order."""
        pairs = (self.requested, other.requested), (self.streams, other.streams)
        # Not array_equal, which loses exceptions.
        return all(one.tobytes() == another.tobytes() for one, another in pairs)

    def alone(self) -> StepLog:
        """Return the log of this step where nothing was alive before; as the one after it, it frees nothing of it."""
        return StepLog(self.events[self.events["kind"] < FREE_PREVIOUS])

    def places(self) -> IntArray:
        """Return how many copies of each block overlap if the step repeats, int64 (n,).

        A block that is freed before its successor is requested needs one; one that is alive until the fourth successor
        exists (a loop that rotates its arrays) needs five. 0: no free was logged.
        """
        n = len(self.requested)
        kind = self.events["kind"].astype(np.int64)
        at = np.flatnonzero((kind >= FREE) & (self.events["request"] < n))
        request = self.events["request"][at].astype(np.int64)
        requests_before = np.cumsum(kind == ALLOCATE)[at]
        places = np.zeros(n, dtype=np.int64)
        np.maximum.at(places, request, kind[at] - FREE + (requests_before > request))
        return places

    def times(self, steps: int) -> StepLog:
        """Return the log of as many steps like this one, taken as one.

        A loop that holds its result until the next one exists needs two places: two steps have room for
        both.
        """
        n = len(self.requested)
        kind = self.events["kind"].astype(np.int64)
        is_free = kind >= FREE
        age = np.where(is_free, kind - FREE, 0)
        copies = []
        for step in range(steps):
            copy = self.events.copy()
            born = step - age
            copy["request"] += ((born % steps) * n).astype(np.uint32)
            copy["kind"] = np.where(is_free, np.where(born < 0, FREE_PREVIOUS, FREE), ALLOCATE)
            copies.append(copy[age <= steps])
        return StepLog(np.concatenate(copies))


def _frees(log: StepLog, kind: int, n: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return of each request's free of a kind, (n,): the gap, the position in the log, the wall clock; -1 for none."""
    gap, position, time_ns = (np.full(n, _NEVER) for _ in range(3))
    gaps = np.cumsum(log.events["kind"] == ALLOCATE)
    at = np.flatnonzero((log.events["kind"] == kind) & (log.events["request"] < n))
    request = log.events["request"][at]
    gap[request] = gaps[at]
    position[request] = at
    time_ns[request] = log.events["time_ns"][at]
    return gap, position, time_ns


def profile_step(log: StepLog, following: StepLog) -> Profile:
    """Build the profile of a step from its log and the log of the step that follows.

    If the following step repeats this one, it shows where wrapped blocks end, and which blocks escape. A block freed
    within the step in both logs lives until the later of the two frees. A block that is still alive when the following
    step requests its successor cannot have one place in a repeating plan: it counts as escaped.

    If the following step is another one (evaluation after training), blocks alive at the end of this step are assumed
    to live until their successors are requested: they keep their places round the whole circle.

    Parameters
    ----------
    log, following
        Consecutive steps.

    Returns
    -------
    Profile
        One block per request of the step, in order.
    """
    size, stream = log.requested, log.streams
    n = len(size)
    repeats = log.equals(following)
    request = np.arange(n)
    own_gap, own_position, own_ns = _frees(log, FREE, n)
    freed = own_gap >= 0
    if repeats:
        next_gap, next_position, next_ns = _frees(following, FREE_PREVIOUS, n)
        wrapped = ~freed & (next_gap >= 0) & (next_gap <= request)
        own_gap = np.maximum(own_gap, _frees(following, FREE, n)[0])
    else:
        next_gap, next_position, next_ns = request, request, np.full(n, _NEVER)
        wrapped = ~freed
    gap = np.where(freed, own_gap, np.where(wrapped, next_gap, _NEVER))
    planned = freed | wrapped

    # The events of the circle, sorted by gap; within a gap frees come before the request that closes it.
    owner = np.concatenate([request, request[planned]])
    is_free = np.repeat([False, True], [n, int(planned.sum())])
    where = np.concatenate([request, gap[planned]])
    position = np.concatenate([request, np.where(freed, own_position, next_position)[planned]])
    order = np.lexsort((position, ~is_free, where))
    tick = np.argsort(order)
    end = np.full(n, ESCAPED)
    end[owner[n:]] = tick[n:]
    end[wrapped] += len(order)
    free_ns = np.where(freed, own_ns, np.where(wrapped, next_ns, _NEVER))
    alloc_ns = log.events["time_ns"][log.events["kind"] == ALLOCATE]
    return Profile(
        size=size,
        start=tick[:n],
        end=end,
        stream=stream,
        alloc_ns=np.where(alloc_ns == 0, UNKNOWN_NS, alloc_ns),
        free_ns=np.where(free_ns == 0, UNKNOWN_NS, free_ns),
        period=len(order),
    )


def profile_in_turn(log: StepLog, following: StepLog, least: int = 1) -> tuple[Profile, int]:
    """Return the profile of a step, or of several in turn if much of it overlaps; and of how many, `least` or more."""
    steps = max(least, steps_in_turn(following)) if log.equals(following) else 1
    if steps == 1:
        return profile_step(log, following), 1
    several = following.times(steps)
    return profile_step(several, several), steps


def steps_in_turn(step: StepLog) -> int:
    """Return how many steps like this one are to be planned together, up to `MOST_TURNS`."""
    places, size = step.places(), step.requested
    places[places > MOST_TURNS] = 0
    return next(n for n in range(1, MOST_TURNS + 1) if not overlap_matters(places > n, size))


def overlap_matters(overlapping: npt.NDArray[np.bool_], size: npt.NDArray[np.int64]) -> bool:
    """Whether so much of a step overlaps its successors that more steps should be planned together.

    Parameters
    ----------
    overlapping
        Which blocks do, bool (n,).
    size
        Bytes of each, int64 (n,).
    """
    share = max(overlapping.sum() / max(len(size), 1), size[overlapping].sum() / max(size.sum(), 1))
    return bool(share > OVERLAPPING)
