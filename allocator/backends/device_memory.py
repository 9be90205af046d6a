"""What a CuPy pool takes from a device besides its arenas: segments of its own, core/device/segments.hpp."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from .._core import Segments, stream_of_thread
from .device_streams import PER_THREAD, on_device

if TYPE_CHECKING:
    from .device_streams import DeviceStreams

UNIT = 512
"""Bytes; what CuPy's own pool rounds sizes to, and what CUDA aligns to."""

OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation, hipErrorOutOfMemory."""


class SegmentPool(Segments):
    """A CuPy allocator that holds no more of a device than has been live at a time.

    A program that goes on asking for other sizes is served by CuPy's own pool in the end, which splits what it has.

    Parameters
    ----------
    device
        Device number.
    streams
        Its streams; None: no capture is looked for.
    """

    def __init__(self, device: int, streams: DeviceStreams | None = None) -> None:
        import cupy

        self._cuda = cupy.cuda
        self._device = device
        self._splitting: Any = None  # CuPy's own pool, once it serves

    def malloc(self, size: int) -> Any:
        """Return a `cupy.cuda.MemoryPointer` to `size` bytes.

        Raises
        ------
        cupy.cuda.memory.OutOfMemoryError
            Neither the device nor the limit has room for it.
        """
        from cupy.cuda.memory import OutOfMemoryError

        if size < 0:  # CuPy's sizes wrap where an array is too large for 64 bits
            raise OverflowError(f"a request of {size:,} bytes; expected 0 or more")
        if size == 0:
            return self._cuda.MemoryPointer(self._cuda.Memory(0), 0)
        rounded = -(-size // UNIT) * UNIT
        for attempt in range(3):
            if attempt == 2:  # as CuPy's pool does: cycles may hold blocks
                gc.collect()
            if attempt > 0:
                self.free_all_blocks()
            if self.is_worn:
                self._note_split()
                if self.keep_limit(rounded):
                    return self._split(size)
                continue
            found = self.take(size, self._stream())
            if not isinstance(found, int):
                block = self._cuda.UnownedMemory(found.address, rounded, found, self._device)
                return self._cuda.MemoryPointer(block, 0)
            if found != OUT_OF_MEMORY:
                raise self._cuda.runtime.CUDARuntimeError(found)
        raise OutOfMemoryError(rounded, self.total_bytes(), self.limit)

    def _stream(self) -> int:
        stream = int(self._cuda.get_current_stream().ptr)
        return stream if stream != PER_THREAD else stream_of_thread()

    # ------------------------------------------------------------------- CuPy's own pool, in the end, and the account

    def _split(self, size: int) -> Any:
        if self._splitting is None:
            self._splitting = self._cuda.MemoryPool()
        super().trim()
        memory = self._splitting.malloc(size)
        self._note_split()
        return memory

    def _note_split(self) -> None:
        if self._splitting is not None:
            self.note_beside(int(self._splitting.total_bytes()), int(self._splitting.used_bytes()))

    def trim(self) -> None:
        """Give everything that is free back to the device."""
        self.free_all_blocks()

    def room(self, within_limit: bool, live_peak: int) -> int:
        """See `Segments`."""
        self._note_split()
        return super().room(within_limit, live_peak)

    def note_arenas(self, size: int) -> None:
        """See `Segments`."""
        if self._splitting is not None:
            self._splitting.free_all_blocks()
        self._note_split()
        super().note_arenas(size)

    def reserved(self) -> tuple[int, int]:
        """See `Segments`."""
        self._note_split()
        return super().reserved()

    # ----------------------------------------------------------------------- what users know from cupy.cuda.MemoryPool

    def total_bytes(self) -> int:
        """Return the bytes that segments and arenas take of the device."""
        return self.reserved()[0]

    def n_free_blocks(self) -> int:
        """Return the number of free segments."""
        split = int(self._splitting.n_free_blocks()) if self._splitting is not None else 0
        return self.free_segments + split

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give all free segments back to the device; `stream`: those of one stream, where CuPy's own pool serves."""
        super().trim()
        if self._splitting is not None:
            self._splitting.free_all_blocks(stream=stream)
        self._note_split()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit what segments and arenas may take; see `cupy.cuda.MemoryPool.set_limit`."""
        # It knows how a fraction is meant, and what is wrong with an argument.
        scratch = self._cuda.MemoryPool()
        with on_device(self._device):
            scratch.set_limit(size=size, fraction=fraction)
            self.limit = int(scratch.get_limit())

    def get_limit(self) -> int:
        """Return the limit in bytes, 0 for none."""
        return self.limit
