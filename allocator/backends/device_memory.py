"""What a CuPy pool takes from a device besides its arenas: a heap of its own, core/device/device_heap.hpp."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from .._core import SHARED, DeviceHeap, stream_of_thread
from .device_streams import PER_THREAD, on_device

if TYPE_CHECKING:
    from .device_streams import DeviceStreams

UNIT = 512
"""Bytes; what CuPy's own pool rounds sizes to, and what CUDA aligns to."""

OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation, hipErrorOutOfMemory."""


class DeviceMemory(DeviceHeap):
    """A CuPy allocator that holds little more of a device than has been live at a time.

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
        self._streams = streams
        if streams is not None:
            streams.heaps.add(self)
        self.use_virtual_memory()

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
        for is_last in (False, True):
            found = self.take(size, self._stream())
            if not isinstance(found, int):
                block = self._cuda.UnownedMemory(found.address, rounded, found, self._device)
                return self._cuda.MemoryPointer(block, 0)
            if found != OUT_OF_MEMORY:
                raise self._cuda.runtime.CUDARuntimeError(found)
            if not is_last:  # as CuPy's pool does: cycles may hold blocks
                gc.collect()
        raise OutOfMemoryError(rounded, self.total_bytes(), self.limit)

    def _stream(self) -> int:
        """Return whose the block is; a graph's is nobody's, as it may be launched on any stream, at any time."""
        if self._streams is not None and self._streams.captures_current():
            return SHARED
        stream = int(self._cuda.get_current_stream().ptr)
        return stream if stream != PER_THREAD else stream_of_thread()

    def make_room(self) -> None:
        """See `DeviceHeap`."""
        if self._streams is not None:
            self._streams.drop_abandoned()
        super().make_room()

    # ----------------------------------------------------------------------- what users know from cupy.cuda.MemoryPool

    def total_bytes(self) -> int:
        """Return the bytes that the heap and arenas take of the device."""
        return self.reserved()[0]

    def n_free_blocks(self) -> int:
        """Return the number of free ranges."""
        return self.free_ranges

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give all that is free back to the device, whatever `stream` it was used on."""
        self.trim()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit what blocks and arenas may take; see `cupy.cuda.MemoryPool.set_limit`."""
        # It knows how a fraction is meant, and what is wrong with an argument.
        scratch = self._cuda.MemoryPool()
        with on_device(self._device):
            scratch.set_limit(size=size, fraction=fraction)
            self.limit = int(scratch.get_limit())

    def get_limit(self) -> int:
        """Return the limit in bytes, 0 for none."""
        return self.limit
