"""A CupyPool on a simulated device, and three of its streams."""

from __future__ import annotations

from typing import Any

from stowplan import CupyPool

from .cupy_host import cupy
from .simulated_cuda import SimulatedCuda
from .simulated_device import SimulatedUpstream, Stream

MAIN, COPY, OTHER = STREAMS = Stream(0), Stream(7), Stream(9)


class SimulatedPool(CupyPool):
    """A CupyPool on a simulated device; everything but the device is the real thing."""

    def __init__(self, **options: Any) -> None:
        self.cuda = SimulatedCuda()
        self.simulated = self.cuda.device
        self.memory = SimulatedUpstream(self.simulated)
        super().__init__(self.memory, device=0, **options)

    def _table(self) -> int:
        return self.cuda.address

    def _streams(self) -> Any:
        device, made = self.simulated, {stream.ptr: stream for stream in STREAMS}  # none is ever dropped
        return lambda: device.now, lambda: made.setdefault(device.now, Stream(device.now)), Stream

    def empty(self, size: int, stream: Stream = MAIN, *, use: bool = True) -> Any:
        """Make an array on a stream, and use it there."""
        before, self.simulated.now = self.simulated.now, stream.ptr
        with cupy.cuda.using_allocator(self.malloc):
            array = cupy.empty(size, cupy.uint8)
        self.simulated.admit(array)
        if use:
            self.simulated.use(array, stream)
        self.simulated.now = before
        return array
