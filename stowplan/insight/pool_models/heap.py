"""What the models of online pools are made of: reservations cut into chunks, and which chunks are in use.

A *reservation* is what a pool gets from the device at once; its chunks follow each other in address::

    reservation 0   [ used | free |   used   ]      a freed chunk joins its free neighbours,
    reservation 1   [     free    | used ]          never those of another reservation

Taking, splitting and joining cost O(log n) comparisons and a short memory move, n being the number of free chunks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...common.errors import PoolError

T = TypeVar("T")


def round_up(size: int, unit: int) -> int:
    """Return the least multiple of ``unit`` that is not below ``size``."""
    return -(-size // unit) * unit


class PoolFullError(Exception):
    """A request that the capacity of a pool does not allow; the model is of no use afterwards."""


class Books(ABC, Generic[T]):
    """Base of the models: checks requests, hands out ids, keeps the figures.

    A request of 0 bytes occupies nothing, as in all the pools that are modelled.

    Attributes
    ----------
    capacity
        The most bytes that may be reserved; None: no limit. Without room for a request, the pool gives back what it can
        and tries again, and else raises `PoolFullError`.
    reserved
        Bytes reserved from the device at the moment.
    peak_reserved
        The most that were ever reserved.
    used
        Bytes of the blocks handed out, as the pool rounds them.
    """

    ROUNDING = 256
    """Bytes that sizes are rounded up to. ``cudaMalloc`` returns addresses that are multiples of so many (CUDA C++
    Programming Guide, "Device Memory Accesses").
    """

    GIVES_BACK = True
    """Whether reservations that are free as a whole go back when memory has run out."""
    capacity: int | None = None

    def __init__(self) -> None:
        self.reserved = 0
        self.peak_reserved = 0
        self.used = 0
        self._live: dict[int, T | None] = {}
        self._next = 0

    def malloc(self, size: int) -> int:
        """Serve a request of ``size`` bytes; returns a new id, to be given to `free`.

        Raises
        ------
        PoolError
            The size is negative.
        """
        if size < 0:
            raise PoolError(f"a request of {size} bytes; expected 0 or more")
        handle = self._next
        self._next += 1
        self._live[handle] = self._serve(round_up(size, self.ROUNDING)) if size else None
        return handle

    def free(self, handle: int) -> None:
        """Take a block back.

        Raises
        ------
        PoolError
            The id is not that of a live block.
        """
        if handle not in self._live:
            raise PoolError(f"there is no live block {handle}: freed twice, or never allocated")
        block = self._live.pop(handle)
        if block is not None:
            self._take_back(block)

    def _reserve(self, size: int) -> None:
        """Enter a change of what is reserved, negative where it is returned."""
        if self.capacity is not None and self.reserved + size > self.capacity:
            self.reserved -= sum(heap.give_back() for heap in self.heaps if self.GIVES_BACK)
            if self.reserved + size > self.capacity:
                raise PoolFullError
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    @property
    def heaps(self) -> tuple[Heap, ...]:
        """What is reserved and free, where a pool cuts reservations."""
        return ()

    @property
    def largest_hole(self) -> int:
        """Bytes of the largest range that is reserved and free."""
        return max((heap.largest for heap in self.heaps), default=0)

    @abstractmethod
    def _serve(self, size: int) -> T: ...

    @abstractmethod
    def _take_back(self, block: T) -> None: ...


@dataclass(eq=False)
class Chunk:
    """A part of one reservation, linked to its neighbours in address."""

    size: int
    address: int
    rank: int = 0  # among free chunks of one size the lowest is taken
    free: bool = False
    before: Chunk | None = field(default=None, repr=False)
    after: Chunk | None = field(default=None, repr=False)


class Heap:
    """Reservations cut into chunks, and an index of the free ones for best fit.

    Parameters
    ----------
    last_freed_first
        Among free chunks of equal size, whether `best` finds the one freed last, or that of the lowest address
        (each reservation lies above the earlier ones).
    keeps
        Bytes: a rest up to so large is not split off.

    Attributes
    ----------
    top
        The address above all reservations.
    tail
        What the next reservation extends, if it extends one: a chunk that is taken only where no other is large enough.
    """

    def __init__(self, *, last_freed_first: bool = False, keeps: int = 0) -> None:
        self.top = 0
        self.tail: Chunk | None = None
        self._free: list[tuple[int, int, Chunk]] = []  # size, rank, chunk; rising, no two alike
        self._last_freed_first = last_freed_first
        self._keeps = keeps
        self._frees = 0

    def __len__(self) -> int:
        """Return the number of free chunks."""
        return len(self._free)

    def ties(self, chunk: Chunk) -> list[Chunk]:
        """Return the free chunks of the size of a free one, itself included."""
        first = bisect_left(self._free, (chunk.size,))
        return [other for _, _, other in self._free[first : bisect_left(self._free, (chunk.size + 1,))]]

    def reserve(self, size: int) -> Chunk:
        """Return a chunk of memory newly reserved, not free."""
        chunk = Chunk(size, self.top, before=self.tail)
        if self.tail is not None:
            self.tail.after = chunk
        self.top += size
        return chunk

    def best(self, size: int) -> Chunk | None:
        """Find the smallest free chunk that is large enough."""
        k = bisect_left(self._free, (size,))
        if k < len(self._free) and self._free[k][2] is self.tail and k + 1 < len(self._free):
            k += 1
        return self._free[k][2] if k < len(self._free) else None

    def take(self, chunk: Chunk) -> None:
        """Let a free chunk be free no more."""
        chunk.free = False
        del self._free[bisect_left(self._free, (chunk.size, chunk.rank))]

    def split(self, chunk: Chunk, size: int) -> None:
        """Keep ``size`` bytes of a chunk that is not free; the rest becomes a free chunk behind it."""
        if chunk.size - size <= self._keeps:
            return
        rest = Chunk(chunk.size - size, chunk.address + size, before=chunk, after=chunk.after)
        if rest.after is not None:
            rest.after.before = rest
        chunk.size, chunk.after = size, rest
        self._remember(rest)

    def release(self, chunk: Chunk) -> Chunk:
        """Free a chunk and join it with its free neighbours; returns what they have become."""
        if chunk.after is not None and chunk.after.free:
            self.take(chunk.after)
            _absorb_next(chunk)
        if chunk.before is not None and chunk.before.free:
            chunk = chunk.before
            self.take(chunk)
            _absorb_next(chunk)
        self._remember(chunk)
        return chunk

    @property
    def largest(self) -> int:
        """Bytes of the largest free chunk."""
        return max((size for size, _, _ in self._free[-2:]), default=0)

    def give_back(self) -> int:
        """Give back the reservations that are free as a whole; return their bytes."""
        whole = [chunk for _, _, chunk in self._free if chunk.before is None and chunk.after is None]
        for chunk in whole:
            self.take(chunk)
        return sum(chunk.size for chunk in whole)

    def _remember(self, chunk: Chunk) -> None:
        self._frees += 1
        chunk.free = True
        chunk.rank = -self._frees if self._last_freed_first else chunk.address
        insort(self._free, (chunk.size, chunk.rank, chunk))


def _absorb_next(chunk: Chunk) -> None:
    gone = chunk.after
    assert gone is not None  # the caller has just looked at it
    chunk.size += gone.size
    chunk.after = gone.after
    if chunk.after is not None:
        chunk.after.before = chunk


class ChunkPool(Books[tuple[Heap, Chunk]]):
    """Base of the models of pools that cut what they reserve.

    A request takes the best free chunk of its heap, or else one that is reserved for it, and splits off the rest. A
    freed chunk joins its free neighbours within the same reservation. Nothing is returned to the device.
    """

    ROUNDING = 512

    @abstractmethod
    def _heap_of(self, size: int) -> Heap:
        """Return the heap that serves a size, which is rounded."""

    def _best(self, size: int) -> Chunk | None:
        """Find the free chunk that a request takes."""
        return self._heap_of(size).best(size)

    def _reservation(self, size: int) -> int:
        """Return the bytes to reserve where no free chunk is large enough."""
        return size

    def _serve(self, size: int) -> tuple[Heap, Chunk]:
        heap, chunk = self._heap_of(size), self._best(size)
        if chunk is None:
            top = heap.top
            chunk = heap.reserve(self._reservation(size))
            self._reserve(heap.top - top)
        else:
            heap.take(chunk)
        heap.split(chunk, size)
        self.used += chunk.size
        return heap, chunk

    def _take_back(self, block: tuple[Heap, Chunk]) -> None:
        heap, chunk = block
        self.used -= chunk.size
        heap.release(chunk)
