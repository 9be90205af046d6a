"""What a CuPy pool takes from a device besides its arenas: segments of its own (or an upstream's: upstream_memory.py).

Both tell what they hold, so that arenas and what is not planned have one account (core/device/device_pool.hpp):

    held  =  live segments  +  free segments  +  arenas  <=  the most bytes that were live at a time

in this step and the last one, or since the program began where it marks no steps. "Live" counts an arena as a whole.
CuPy's own pool holds at least as much: it never gives anything back by itself.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from .device_streams import PER_THREAD, on_device
from .pages import Page, Pages

if TYPE_CHECKING:
    from .device_streams import DeviceStreams

UNIT = 512
"""Bytes; what CuPy's own pool rounds sizes to, and what CUDA aligns to."""

PAGE = 2 << 20
"""Bytes; what CUDA's driver counts memory in, and what small blocks share."""

ENDLESS = 1 << 60
"""Bytes: no limit, in sums that must not overflow."""

OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation, hipErrorOutOfMemory."""

PATIENCE = 10_000
"""Segments that a program takes from the device before CuPy's own pool serves it: a second's worth, at 0.1 ms each."""


class DeviceMemory:
    """What a pool asks of one device's memory; arenas come from there as well, unless it `grows_arenas`."""

    grows_arenas = False
    """Whether arenas may come from the device's virtual memory, besides this."""
    page = PAGE
    """Bytes that the device counts memory in."""

    def malloc(self, size: int) -> Any:
        """Return a `cupy.cuda.MemoryPointer` to `size` bytes. Errors are CuPy's."""
        raise NotImplementedError

    def trim(self) -> None:
        """Give what is free back to the device."""
        raise NotImplementedError

    def room(self, within_limit: bool, live_peak: int) -> int:
        """Return the bytes that all arenas may take now, so that no more is held than has been live at a time.

        `within_limit`: so many as the limit allows. `live_peak`: the most bytes that the program has had live at a
        time, wherever they lie.
        """
        return 0

    def note_arenas(self, size: int) -> None:
        """Make room for arenas of `size` bytes in all."""

    def begin_step(self) -> None:
        """Note that a step begins; on any thread, also one that must not ask the device."""

    def make_room(self) -> None:
        """Give back to the device what is held beyond what has been live at a time."""

    def reserved(self) -> tuple[int, int] | None:
        """Return the bytes held of the device, arenas included, and the most so far; None where that is not known."""
        raise NotImplementedError

    def reset_peak(self) -> None:
        """Take what is held now for the most so far."""


class SegmentPool(DeviceMemory):
    """A CuPy allocator that holds no more of a device than has been live at a time.

    Each block is a segment of its own, of whole pages, which the device gives whole and gets back whole. So a parameter
    never holds part of a former workspace, and with it all of the workspace's memory. Blocks of up to half a page share
    segments of a page (`pages`). A free segment waits for a request of its size on its stream, as
    long as the account allows; the one that has waited longest goes first. A program that goes on requesting other
    sizes is served by CuPy's own pool in the end, which splits what it has.

    O(1) for a request that a free segment serves; else a call of the device.

    Parameters
    ----------
    device
        Device number.
    streams
        Its streams; None: no capture is looked for.
    """

    grows_arenas = True

    def __init__(self, device: int, streams: DeviceStreams | None = None) -> None:
        import cupy

        self._cuda = cupy.cuda
        self._device = device
        self._streams = streams
        self._lock = threading.RLock()  # a request may run finalizers, which ask again
        # A finalizer may run anywhere: all that it does is to note here stream, bytes and memory.
        self._returned: deque[tuple[int, int, Any]] = deque()
        self._pages: dict[int, Pages] = {}  # by stream
        self._cutting = False  # pages are being looked at: a finalizer's request gets a segment of its own
        # Bytes of live segments that belong to no block: in shared pages, and behind blocks of their own pages.
        self._holes = self._ends = 0
        self._free: dict[tuple[int, int], list[Any]] = {}  # (stream, bytes) -> memory; the longest free first
        self._live = self._kept = self._arenas = 0  # bytes: of live and of free segments, and of arenas
        self._most = self._most_before = (
            0  # bytes that were live at a time: in this step, and in the one before it
        )
        # The most bytes of blocks and arenas at a time, and the bytes of segments that belonged to no block then.
        self._top = self._lost = 0
        self._peak = 0  # bytes held at a time, at the most
        self._taken = 0
        self._limit = 0
        self._splitting: Any = None  # CuPy's own pool, once it serves

    def malloc(self, size: int) -> Any:
        """Return a `cupy.cuda.MemoryPointer` to `size` bytes.

        Raises
        ------
        cupy.cuda.memory.OutOfMemoryError
            Neither the device nor the limit has room for it.
        """
        if size < 0:  # CuPy's sizes wrap where an array is too large for 64 bits
            raise OverflowError(f"a request of {size:,} bytes; expected 0 or more")
        if size == 0:
            return self._cuda.MemoryPointer(self._cuda.Memory(0), 0)
        rounded = -(-size // UNIT) * UNIT
        with self._lock:
            self._collect()
            if self._splitting is None and self._taken >= PATIENCE:
                self._splitting = self._cuda.MemoryPool()
            if self._splitting is not None:
                self._release(0)
                self._keep_limit(rounded)
                memory = self._splitting.malloc(size)
                self._note(0)
                return memory
            stream = self._stream()
            if 2 * rounded <= self.page and not self._cutting:
                page, offset = self._cut(stream, rounded)
                address, owner = page.memory.ptr + offset, _Segment(self, stream, rounded, (page, offset))
            else:
                memory = self._segment(stream, -(-rounded // self.page) * self.page, rounded)
                self._ends += -rounded % self.page
                address, owner = memory.ptr, _Segment(self, stream, rounded, memory)
            block = self._cuda.UnownedMemory(address, rounded, owner, self._device)
        return self._cuda.MemoryPointer(block, 0)

    def _segment(self, stream: int, size: int, asked: int) -> Any:
        """Return the memory of a segment of `size` bytes, which is live now, for a block of `asked`."""
        memory = self._reuse((stream, size)) or self._take(size, asked)
        self._note(size)
        return memory

    def _cut(self, stream: int, size: int) -> tuple[Page, int]:
        """Return a page and an offset in it for a small block."""
        from cupy.cuda.memory import OutOfMemoryError

        self._keep_limit(size)
        found = self._room_in_pages(stream, size)
        if found is None:
            try:
                page = Page(self._segment(stream, self.page, size), self.page)
            except OutOfMemoryError:
                found = self._room_in_pages(stream, size)  # cycles that went may have left some
                if found is None:
                    raise
            else:
                found = page, page.take(size) or 0
                self._holes += self.page
                self._pages.setdefault(stream, Pages()).add(page)
        self._holes -= size
        self._note_most()
        return found

    def _room_in_pages(self, stream: int, size: int) -> tuple[Page, int] | None:
        pages = self._pages.get(stream)
        if pages is None:
            return None
        self._cutting = True
        try:
            return pages.take(size)
        finally:
            self._cutting = False

    def _stream(self) -> int:
        stream = int(self._cuda.get_current_stream().ptr)
        return stream if stream != PER_THREAD else -threading.get_ident()

    def _reuse(self, key: tuple[int, int]) -> Any:
        """Return a free segment's memory, or None."""
        waiting = self._free.get(key)
        if waiting is None:
            return None
        segment = waiting.pop()
        if not waiting:
            del self._free[key]
        self._kept -= key[1]
        return segment

    def _keep_limit(self, asked: int) -> None:
        """Give back what is free, so that `asked` bytes more keep to the limit; it does not count what no block has."""
        from cupy.cuda.memory import OutOfMemoryError

        for attempt in range(3):
            over = self.held() - self._holes - self._ends + asked - self._limit
            if not self._limit or over <= 0:
                return
            if attempt == 1:  # as CuPy's pool does: cycles may hold blocks
                gc.collect()
                self._collect()
            self._release(max(self._kept - over, 0))
            if self._splitting is not None:
                self._splitting.free_all_blocks()
        raise OutOfMemoryError(asked, self.held(), self._limit)

    def _take(self, size: int, asked: int) -> Any:
        """Return new memory of the device, for a block of `asked` bytes."""
        from cupy.cuda.memory import OutOfMemoryError

        self._make_room(size)
        self._keep_limit(asked)
        self._taken += 1
        runtime = self._cuda.runtime
        for attempt in range(3):
            try:
                with on_device(self._device):
                    return self._cuda.Memory(size)
            except runtime.CUDARuntimeError as error:
                if error.status != OUT_OF_MEMORY:
                    raise
            if attempt == 0:
                self._release(0)
            elif attempt == 1:
                gc.collect()
                self._collect()
                self._release(0)
        raise OutOfMemoryError(asked, self.held(), self._limit)

    def _collect(self) -> None:
        """Take back the segments of blocks that have ended; not where a finalizer asks in the midst of a request."""
        if self._cutting:
            return
        self._cutting = True
        try:
            self._take_back()
        finally:
            self._cutting = False

    def _take_back(self) -> None:
        while self._returned:
            stream, size, memory = self._returned.popleft()
            segment = -(-size // self.page) * self.page
            if isinstance(memory, tuple):  # of a small block
                page, offset = memory
                self._holes += size
                if not self._pages[stream].give(page, offset, size):
                    continue
                self._holes -= segment
                memory = page.memory
            else:
                self._ends -= segment - size
            self._live -= segment
            self._kept += segment
            self._free.setdefault((stream, segment), []).append(memory)

    def _make_room(self, size: int) -> None:
        """Give back free segments, so that `size` bytes more fit in what has been live at a time."""
        self._release(max(self._allowed() - self._live - self._arenas - size, 0))

    def _allowed(self) -> int:
        return max(self._most, self._most_before)

    def _release(self, keep: int) -> None:
        """Give free segments back to the device until at most `keep` bytes of them are left; not during a capture."""
        if self._kept <= keep or self._capturing():
            return
        while self._kept > keep and self._free:
            key = next(iter(self._free))
            waiting = self._free.pop(key)
            while waiting and self._kept > keep:
                del waiting[0]
                self._kept -= key[1]
            if waiting:
                self._free[key] = waiting

    def _capturing(self) -> bool:
        return self._streams is not None and self._streams.capturing()

    def _note(self, size: int) -> None:
        self._live += size
        self._note_most()
        self._peak = max(self._peak, self.held())

    def _note_most(self) -> None:
        """Note what has been live at a time, as if small blocks filled their pages."""
        filled = self._live - self._holes // self.page * self.page
        self._most = max(self._most, filled + self._arenas)
        lost = self._holes + self._ends
        if self._live - lost + self._arenas > self._top:
            self._top, self._lost = self._live - lost + self._arenas, lost

    # ------------------------------------------------------------------------------------------------------- arenas

    def trim(self) -> None:
        """See `DeviceMemory`."""
        self.free_all_blocks()

    def room(self, within_limit: bool, live_peak: int) -> int:
        """See `DeviceMemory`."""
        with self._lock:
            self._collect()
            lost = self._holes + self._ends
            most = ENDLESS if within_limit else live_peak + min(lost, self._lost)
            split = int(self._splitting.used_bytes()) if self._splitting is not None else 0
            return max(min(most, (self._limit or ENDLESS) + lost) - self._live - split, 0)

    def note_arenas(self, size: int) -> None:
        """See `DeviceMemory`."""
        with self._lock:
            self._collect()
            self._make_room(max(size - self._arenas, 0))
            if size > self._arenas and self._splitting is not None:
                self._splitting.free_all_blocks()
            self._arenas = size
            self._note(0)

    def begin_step(self) -> None:
        """See `DeviceMemory`."""
        with self._lock:
            self._collect()
            self._most_before, self._most = self._most, self._live + self._arenas

    def make_room(self) -> None:
        """See `DeviceMemory`."""
        with self._lock:
            self._collect()
            self._make_room(0)
            if self._splitting is not None and self._arenas and not self._capturing():
                self._splitting.free_all_blocks()

    def reserved(self) -> tuple[int, int]:
        """See `DeviceMemory`."""
        with self._lock:
            return self.held(), self._peak

    def reset_peak(self) -> None:
        """See `DeviceMemory`."""
        with self._lock:
            self._peak = self.held()

    # ----------------------------------------------------------------------- what users know from cupy.cuda.MemoryPool

    def _split(self) -> int:
        return int(self._splitting.total_bytes()) if self._splitting is not None else 0

    def held(self) -> int:
        """Return the bytes that segments and arenas take of the device."""
        return self._live + self._kept + self._arenas + self._split()

    total_bytes = held

    def n_free_blocks(self) -> int:
        """Return the number of free segments."""
        with self._lock:
            self._collect()
            split = int(self._splitting.n_free_blocks()) if self._splitting is not None else 0
            return sum(map(len, self._free.values())) + split

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give all free segments back to the device; `stream`: those of one stream, where CuPy's own pool serves."""
        with self._lock:
            self._collect()
            self._release(0)
            if self._splitting is not None:
                self._splitting.free_all_blocks(stream=stream)

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit what segments and arenas may take; see `cupy.cuda.MemoryPool.set_limit`."""
        scratch = (
            self._cuda.MemoryPool()
        )  # it knows how a fraction is meant, and what is wrong with an argument
        with on_device(self._device):
            scratch.set_limit(size=size, fraction=fraction)
            self._limit = int(scratch.get_limit())

    def get_limit(self) -> int:
        """Return the limit in bytes, 0 for none."""
        return self._limit


class _Segment:
    """Owns the memory of a live block: when it ends, its pool takes it back."""

    __slots__ = ("ended", "returned")

    def __init__(self, pool: SegmentPool, stream: int, size: int, memory: Any) -> None:
        self.returned, self.ended = pool._returned, (stream, size, memory)

    def __del__(self) -> None:
        self.returned.append(self.ended)
