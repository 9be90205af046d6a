"""Online pools, as models: what would one that cannot see the future have reserved for the same requests.

A model keeps the books of a pool and touches no memory. `replay` drives it with the requests of a problem's
step, over and over, as a training loop would.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from ..errors import PoolError
from .problem import IntArray, Problem


class Pool(Protocol):
    """What `replay` needs of a pool."""

    def malloc(self, size: int) -> int:
        """Serve a request of ``size`` bytes; returns the id to free it by."""

    def free(self, handle: int) -> None:
        """Take a block back."""


@dataclass(eq=False)
class _Chunk:
    """A part of one reservation, linked to its neighbours in address."""

    size: int
    free: bool = False
    before: _Chunk | None = field(default=None, repr=False)
    after: _Chunk | None = field(default=None, repr=False)


class CupyPoolModel:
    """CuPy's ``MemoryPool`` on one stream, without a device.

    Sizes are rounded up to 512 bytes. A request takes the smallest free chunk that is large enough (of equals
    the one freed last) and splits off the rest; without one, exactly its rounded size is reserved with
    ``cudaMalloc``. A freed chunk joins its free neighbours within the same reservation. Nothing is returned
    to the device. A request of 0 bytes occupies nothing.

    Attributes
    ----------
    reserved
        Bytes reserved from the device (CuPy's ``total_bytes``).
    peak_reserved
        The most that were ever reserved; as nothing is returned, the same.
    used
        Bytes of the chunks handed out (CuPy's ``used_bytes``).
    """

    GRANULARITY = 512

    def __init__(self) -> None:
        self.reserved = 0
        self.peak_reserved = 0
        self.used = 0
        self._live: dict[int, _Chunk | None] = {}
        self._next = 0
        self._sizes: list[int] = []  # sizes of which free chunks exist, rising
        self._free: dict[int, list[_Chunk]] = {}  # by size, in the order of their frees

    def malloc(self, size: int) -> int:
        """Serve a request.

        Parameters
        ----------
        size
            Bytes, 0 or more.

        Returns
        -------
        int
            A new id, to be given to `free`.
        """
        if size < 0:
            raise PoolError(f"a request of {size} bytes; expected 0 or more")
        handle = self._next
        self._next += 1
        rounded = -(-size // self.GRANULARITY) * self.GRANULARITY
        self._live[handle] = self._take(rounded) if rounded else None
        return handle

    def free(self, handle: int) -> None:
        """Take a block back and join it with its free neighbours.

        Raises
        ------
        PoolError
            The id is not that of a live block.
        """
        if handle not in self._live:
            raise PoolError(f"there is no live block {handle}: freed twice, or never allocated")
        chunk = self._live.pop(handle)
        if chunk is None:
            return
        self.used -= chunk.size
        if chunk.after is not None and chunk.after.free:
            self._forget(chunk.after)
            self._absorb_next(chunk)
        if chunk.before is not None and chunk.before.free:
            chunk = chunk.before
            self._forget(chunk)
            self._absorb_next(chunk)
        self._remember(chunk)

    def _take(self, size: int) -> _Chunk:
        k = bisect_left(self._sizes, size)
        if k < len(self._sizes):
            chunk = self._free[self._sizes[k]][-1]
            self._forget(chunk)
            if chunk.size > size:
                rest = _Chunk(chunk.size - size, before=chunk, after=chunk.after)
                if rest.after is not None:
                    rest.after.before = rest
                chunk.size, chunk.after = size, rest
                self._remember(rest)
        else:
            chunk = _Chunk(size)
            self.reserved += size
            self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.used += size
        return chunk

    def _absorb_next(self, chunk: _Chunk) -> None:
        gone = chunk.after
        assert gone is not None  # the caller has just looked at it
        chunk.size += gone.size
        chunk.after = gone.after
        if chunk.after is not None:
            chunk.after.before = chunk

    def _remember(self, chunk: _Chunk) -> None:
        chunk.free = True
        if chunk.size not in self._free:
            self._free[chunk.size] = []
            insort(self._sizes, chunk.size)
        self._free[chunk.size].append(chunk)

    def _forget(self, chunk: _Chunk) -> None:
        chunk.free = False
        same = self._free[chunk.size]
        same.remove(chunk)
        if not same:
            del self._free[chunk.size]
            del self._sizes[bisect_left(self._sizes, chunk.size)]


class Requests(NamedTuple):
    """The requests of one step in time order, by row: which block, and whether it is allocated."""

    block: IntArray
    allocate: np.ndarray


def requests(problem: Problem) -> Requests:
    """List the allocations and frees that a problem stands for.

    A block is allocated where its lifetime starts or a gap ends, and freed where a gap starts or its lifetime
    ends; a gap that leaves a window of it does neither. A wrapped block, one with gaps that is alive at both
    ends of the step, is not freed at the end: the first gap of the *next* step does that. At one tick frees
    come first, then rows in order.
    """
    n = len(problem)
    absent = problem.gaps[problem.gaps[:, 4] == 0]
    begins = np.concatenate([np.stack([problem.start, np.arange(n)]), absent[:, [2, 0]].T], axis=1)
    ends = np.concatenate([absent[:, [1, 0]].T, np.stack([problem.end, np.arange(n)])], axis=1)
    if n:
        first, last = problem.start.min(), problem.end.max()
        wrapped = (problem.start == first) & (problem.end == last)
        wrapped &= np.isin(np.arange(n), absent[:, 0])
        begins = begins[:, ~(wrapped[begins[1]] & (begins[0] == first))]
        ends = ends[:, ~(wrapped[ends[1]] & (ends[0] == last))]
    tick, block = np.concatenate([ends, begins], axis=1)
    allocate = np.arange(len(tick)) >= ends.shape[1]
    order = np.lexsort((block, allocate, tick))
    return Requests(block[order], allocate[order])


def replay(pool: Pool, problem: Problem, steps: int = 3) -> None:
    """Drive a pool with the requests of a step, ``steps`` times in a row.

    Wrapped blocks of the last step are freed by no one, as in a loop that is interrupted there; in the first
    step there are none to free yet.
    """
    block, allocate = requests(problem)
    size = problem.size.tolist()
    script = list(zip(block.tolist(), allocate.tolist(), strict=True))
    live: dict[int, int] = {}
    for _ in range(steps):
        for i, wanted in script:
            if wanted:
                live[i] = pool.malloc(size[i])
            elif i in live:
                pool.free(live.pop(i))
