"""Swap a device's arrays to pinned memory of the host, with the interface of `stowplan.swapping`.

::

    caller's stream    ...kernels... | evict        wait_evicted | memory is free for what comes next
                                     v event             ^ event
    swap's stream                    copy to the host ---+

Copies run on a stream of their own, and events order them: no call but `close` waits on the host. The caller's stream
waits in `wait_evicted`, so that memory let go after it is free for whatever that stream does next.
"""

from __future__ import annotations

from typing import Any

from ..common.swapping import SwapCounts


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
