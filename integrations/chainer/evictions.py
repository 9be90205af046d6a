"""The values of one step that are out of memory, and when they leave and come back.

A schedule names *moments*: before which forward operator, or which backward step, a value's array goes, and before
which it is fetched. The write begins when its last forward reader has run; the array goes at its moment, after waiting
for the write if need be, so that the pool sees the same frees in each step::

    forward   ... reader  |-- write --|        backward   ... |--- read ---| reader
                                      ^ leaves                ^ fetched

A value that cannot be written stays in memory, and so do those after it: `Evictions.failure` tells why.

A device's arrays go to pinned memory of the host (`PinnedSwap`), with the interface of `stowplan.swapping`::

    caller's stream    ...kernels... | evict        wait_evicted | memory is free for what comes next
                                     v event             ^ event
    swap's stream                    copy to the host ---+

Copies run on a stream of their own, and events order them: no call but `close` waits on the host. The caller's stream
waits in `wait_evicted`, so that memory let go after it is free for whatever that stream does next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from chainer.backend import get_array_module

from ..common.swapping import SwapCounts, SwapError, SwapFile

FORWARD, BACKWARD = "forward", "backward"
Moment = tuple[str, int]
"""A moment before a forward operator (its number), or a backward step (its place among them)."""


class PinnedTicket:
    """One array of a device that is evicted to pinned memory of the host. The methods are those of `Ticket`."""

    def __init__(self, swap: PinnedSwap, array: Any) -> None:
        self._swap = swap
        self.array: Any = array  # while the ticket holds it
        self.nbytes = array.nbytes
        self._host: Any = swap._cupy.cuda.alloc_pinned_memory(max(array.nbytes, 1))
        self._done = swap._copy(self._host.ptr, array.data.ptr, array.nbytes, to_host=True)

    def wait_evicted(self) -> None:
        """Make the current stream wait until the array is copied, and let go of it."""
        self._swap._wait(self._done)
        if self.array is not None:
            self.array = None
            self._swap.counts.evicted += 1
            self._swap.counts.bytes_out += self.nbytes

    def start_fetch(self, out: Any) -> None:
        """Start copying into an array of the caller's: alike, and dense."""
        self._done = self._swap._copy(out.data.ptr, self._host.ptr, self.nbytes, to_host=False)

    def wait_fetched(self) -> None:
        """Make the current stream wait until the array is filled."""
        self._swap._wait(self._done)
        self._swap.counts.fetched += 1
        self._swap.counts.bytes_in += self.nbytes

    def close(self) -> None:
        """Release the host's memory, after the last copy."""
        if self._host is not None:
            self._done.synchronize()  # CuPy's pool of pinned memory does not order streams
            self._host = self.array = None


class PinnedSwap:
    """Pinned memory of the host that arrays on the current device are swapped out to."""

    def __init__(self) -> None:
        import cupy

        self.counts = SwapCounts()
        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def evict(self, array: Any) -> PinnedTicket:
        """Start copying a dense array of CuPy to the host."""
        return PinnedTicket(self, array)

    def close(self) -> None:
        """Wait for the copies in progress."""
        self._stream.synchronize()

    def _copy(self, to: int, source: int, size: int, *, to_host: bool) -> Any:
        """Start a copy behind what the current stream has been given; return the event of its end."""
        runtime = self._cupy.cuda.runtime
        self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
        direction = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
        runtime.memcpyAsync(to, source, size, direction, self._stream.ptr)
        return self._stream.record()

    def _wait(self, done: Any) -> None:
        self._cupy.cuda.get_current_stream().wait_event(done)


Swap = SwapFile | PinnedSwap
"""Where evicted arrays are."""


@dataclass
class _Out:
    """A value that is out of memory, or leaves it."""

    ticket: Any
    empty: Callable[[], Any]
    """Makes the array to be filled."""
    axes: tuple[int, ...]
    """Back to the order that the program knows."""
    coming: Any = None
    """The array that is being filled."""


class Evictions:
    """The values that are out of memory in one step.

    Parameters
    ----------
    swap
        The place that values are moved to; None: all stay.

    Attributes
    ----------
    failure
        Why values that were to be evicted stayed in memory; None: none did.
    fetched
        Values that were out, and have come back.
    """

    def __init__(self, swap: Swap | None) -> None:
        self._swap = swap
        self._out: dict[int, _Out] = {}
        self.failure: str | None = None
        self.fetched = 0

    def begin(self, value: int, array: Any) -> bool:
        """Start to write a value's array; return whether there was room. The ticket holds the array until it leaves."""
        if self._swap is None or self.failure is not None:
            return False
        # A convolution's output is dense, with its axes in another order: that of its memory is written.
        axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        array = array.transpose(axes)
        if not array.flags.c_contiguous:
            return False
        try:
            ticket = self._swap.evict(array)
        except SwapError as error:
            self.failure = str(error)
            return False
        empty = partial(get_array_module(array).empty, array.shape, array.dtype)
        self._out[value] = _Out(ticket, empty, tuple(sorted(range(array.ndim), key=axes.__getitem__)))
        return True

    def leave(self, values: Sequence[int]) -> None:
        """Let go of arrays, once they are written."""
        for value in values:
            if value in self._out:
                try:
                    self._out[value].ticket.wait_evicted()
                except SwapError as error:
                    self.failure = str(error)  # the ticket holds the array still

    def fetch(self, values: Sequence[int]) -> None:
        """Start to read arrays, each into a new one."""
        for value in values:
            out = self._out.get(value)
            if out is not None and out.ticket.array is None and out.coming is None:
                out.coming = out.empty()
                out.ticket.start_fetch(out.coming)

    def take(self, value: int) -> Any:
        """Wait for a value's array, and return it; None if it is not out. It belongs to the caller from then on."""
        self.fetch([value])
        out = self._out.pop(value, None)
        if out is None:
            return None
        try:
            array = out.ticket.array
            if array is None:
                out.ticket.wait_fetched()
                self.fetched += 1
                array = out.coming
            return array.transpose(out.axes)
        finally:
            out.ticket.close()

    def close(self) -> None:
        """Discard the arrays that are out."""
        for out in self._out.values():
            out.ticket.close()
        self._out.clear()
