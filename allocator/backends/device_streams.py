"""What a pool needs of a device's streams: which one is current, and events between them.

An ordering between two streams is never taken on trust. The pool makes it: it records an event on the one, and has the
other wait for it, or the host see it done.
"""

from __future__ import annotations

from typing import Any


class DeviceStreams:
    """CUDA's streams, through CuPy.

    Parameters
    ----------
    device
        Device number.

    Attributes
    ----------
    current
        ``f() -> int``, the current stream's address; or a capsule with CuPy's C function of the same name.
    """

    def __init__(self, device: int) -> None:
        import cupy
        from cupy_backends.cuda import stream

        self._device = device
        self._cuda = cupy.cuda
        self._runtime = cupy.cuda.runtime
        # Where CuPy exports its C function it is called: a request then runs none of Python's bytecode.
        exported = getattr(stream, "__pyx_capi__", {})
        self.current = exported.get("get_current_stream_ptr", lambda: cupy.cuda.get_current_stream().ptr)

    def synchronize(self) -> None:
        """Wait until all streams have done all that they were given."""
        with self._cuda.Device(self._device):
            self._runtime.deviceSynchronize()

    def capturing(self) -> bool:
        """Return whether the current stream is being captured into a graph."""
        return self._captures(self._cuda.get_current_stream().ptr)

    def record(self, stream: Any) -> Any:
        """Record an event on a stream, and return it; None while the stream is being captured."""
        if self._captures(stream.ptr):
            return None
        with self._cuda.Device(self._device):
            event = self._cuda.Event(disable_timing=True)
            event.record(stream)
        return event

    def done(self, event: Any) -> bool:
        """Return whether all that came before an event is done."""
        return bool(event.done)

    def wait(self, stream: int, event: Any) -> None:
        """Have all that a stream is given from now on come after an event."""
        with self._cuda.Device(self._device):
            self._runtime.streamWaitEvent(stream, event.ptr)

    def _captures(self, stream: int) -> bool:
        try:
            return bool(self._runtime.streamIsCapturing(stream))
        except self._runtime.CUDARuntimeError:
            return True  # asked of the default stream, while another one is being captured
