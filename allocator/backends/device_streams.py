"""What a pool needs of a device's streams: which one is current, and events between them.

An ordering between two streams is never taken on trust. The pool makes it: it records an event on the one, and has the
other wait for it, or the host see it done. It does not wait for the device, which would destroy the captures of all
streams, also of those that the pool does not know.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...errors import PoolError
from .._core import look_at_streams, while_capturing

PER_THREAD = 2
"""CUDA's handle of the default stream that each thread has for itself."""

MANY = 16
"""Streams that a pool keeps before it looks which of them the program has dropped."""


def on_device(device: int) -> AbstractContextManager[Any]:
    """Return a context manager in which this is the thread's current device.

    Where it is already, no device is set afterwards: to go back to one, such as the first one, on which every thread
    begins, makes a context there.
    """
    import cupy

    is_current = cupy.cuda.device.get_device_id() == device
    manager: AbstractContextManager[Any] = nullcontext() if is_current else cupy.cuda.Device(device)
    return manager


class DeviceStreams:
    """A device's streams, through CuPy: one object for all pools, see `streams_of`.

    A stream that a pool has served is kept, since its work may have to be waited for, until the program has dropped it
    and an event stands for that work. It goes with its capture, where that was abandoned. A foreign stream, another
    library's, cannot be kept: its handle is not used any more once the program has dropped CuPy's object for it. Where
    no event stands for the work of a stream that has gone, the device is waited for.

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
        self._kept: dict[int, Any] = {}  # by handle; a weak reference to a foreign one
        self._gone = self._awaited = 0  # those without an event, and those of them whose work is over
        self._many = MANY
        self._events: list[Any] = []  # behind what streams were given that are gone

    def serve(self, handle: int) -> None:
        """Note that the current stream, which has this handle, asks the pool for memory."""
        kept = self._kept.get(handle)
        # A weak reference may be to another object than the current stream.
        if kept is None or isinstance(kept, weakref.ref):
            self.keep(self._cuda.get_current_stream())

    def keep(self, stream: Any) -> Any:
        """Note that a stream uses the pool's memory; return it as `record` takes it."""
        self._served()
        if len(self._kept) >= self._many:
            self._drop_unused()
        is_own = (
            isinstance(stream, self._cuda.Stream) and getattr(stream, "_foreign_stream_ref", None) is None
        )
        # The legacy stream waits for every thread's own one.
        own = self._cuda.Stream.null if stream.ptr == PER_THREAD else stream
        kept = self._kept[stream.ptr] = own if is_own else weakref.ref(stream)
        return kept

    def _served(self) -> list[tuple[int, Any]]:
        """Return the streams that are there, by handle; count the foreign ones that have gone."""
        there = []
        for handle, kept in list(self._kept.items()):
            if (stream := _there(kept)) is not None:
                there.append((handle, stream))
            elif self._kept.get(handle) is kept:
                del self._kept[handle]
                self._gone += 1
                look_at_streams()
        return there

    def _drop_unused(self) -> None:
        self._events = [event for event in self._events if not self.done(event)]
        for handle in list(self._kept):
            if not self._is_dropped(handle):
                continue
            try:
                event = self.record(self._kept[handle])
            except self._runtime.CUDARuntimeError:
                continue  # see synchronize()
            if event is not None:
                self._events.append(event)
                del self._kept[handle]
        look_at_streams()
        self._many = max(MANY, 2 * len(self._kept))

    def _is_dropped(self, handle: int) -> bool:
        """Return whether a stream is kept that only this object has any more."""
        kept = self._kept.get(handle)
        references = 3  # the dictionary's, this function's, the next call's
        return kept is not None and not isinstance(kept, weakref.ref) and sys.getrefcount(kept) <= references

    def _abandon(self, handle: int) -> bool:
        """Let a stream that is being captured go, with its capture, if the program has dropped it; return that."""
        if is_dropped := self._is_dropped(handle):
            del self._kept[handle]
            self._gone += 1
            look_at_streams()
        return is_dropped

    def synchronize(self) -> None:
        """Wait for all that the streams have been given which a pool has served.

        Raises
        ------
        PoolError
            One of them is being captured.
        """
        if any(self._captured()):
            raise PoolError("a stream is being captured; expected to wait for it")
        streams, gone = self._served(), self._gone
        events = self._events.copy()
        any_ended = gone != self._awaited
        for _, stream in streams:
            try:
                event = self.record(stream)
            except self._runtime.CUDARuntimeError:  # another library's, which is there no longer
                any_ended = True
                continue
            if event is None:
                raise PoolError("a stream is being captured; expected to wait for it")
            events.append(event)
        for event in events:
            while_capturing(event.synchronize)
        if any_ended:
            with on_device(self._device):
                self._runtime.deviceSynchronize()
            self._awaited = gone

    def capturing(self) -> bool:
        """Return whether the current stream, or another one that a pool has served, is being captured."""
        with on_device(self._device):  # whose legacy stream it may be
            return self.captures_current() or any(self._captured())

    def _captured(self) -> Iterator[int]:
        """Return the handles of the streams that are being captured, but for those that the program has dropped."""
        for handle in [handle for handle, _ in self._served()]:
            if self._captures(handle) and not self._abandon(handle):
                yield handle

    def captures_current(self) -> bool:
        """Return whether the current stream is being captured into a graph."""
        return self._captures(self._cuda.get_current_stream().ptr)

    def record(self, kept: Any) -> Any:
        """Record an event on a stream that is kept, and return it; None while the stream is being captured.

        Raises
        ------
        PoolError
            It has gone.
        """
        if (stream := _there(kept)) is None:
            raise PoolError("the program has dropped a stream of another library")
        with on_device(self._device):
            if self._captures(stream.ptr):
                return None
            event = self._cuda.Event(disable_timing=True)
            event.record(stream)
            # Another thread may have begun a capture meanwhile, and then the event is the capture's.
            return None if self._captures(stream.ptr) else event

    def done(self, event: Any) -> bool:
        """Return whether all that came before an event is done."""
        return bool(while_capturing(lambda: event.done))

    def wait(self, stream: int, event: Any) -> None:
        """Have all that a stream is given from now on come after an event."""
        with on_device(self._device):
            self._runtime.streamWaitEvent(stream, event.ptr)

    def _captures(self, stream: int) -> bool:
        try:
            return bool(self._runtime.streamIsCapturing(stream))
        except (
            RuntimeError
        ):  # asked of the default stream while another one is captured, or of a broken capture
            return True


def _there(kept: Any) -> Any:
    """Return a stream that is kept; None where it has gone, or is none."""
    return kept() if isinstance(kept, weakref.ref) else kept


@functools.cache
def streams_of(device: int) -> DeviceStreams:
    """Return the streams of a device. They stay: what a dead pool leaves behind may have to wait for them."""
    return DeviceStreams(device)
