"""The free ranges of a swap file, and the one thread that writes and reads it.

``Ranges``     sorted free ranges, first fit
``Transfer``   one write or read between bytes in memory and a range
``Helper``     the thread: reads come first, since a caller waits for them; each kind in its order
"""

from __future__ import annotations

import bisect
import collections
import os
import threading

IO_BYTES = 8 << 20
"""Most bytes written or read in one call."""


class Ranges:
    """First fit over one file: sorted free ranges ``[start, stop)`` below `end`, no two of which touch.

    Linear in the free ranges for `take`, logarithmic and a list insertion for `give`.
    """

    def __init__(self) -> None:
        self.end = 0
        self.free: list[tuple[int, int]] = []

    def take(self, size: int) -> int | None:
        """Return the start of the first free range that is large enough, or None."""
        for index, (start, stop) in enumerate(self.free):
            if stop - start >= size:
                self.free[index : index + 1] = [(start + size, stop)] if start + size < stop else []
                return start
        return None

    def start_of_growth(self) -> int:
        """Return where a range would start that reaches beyond the end."""
        return self.free[-1][0] if self.free and self.free[-1][1] == self.end else self.end

    def grow(self, end: int) -> None:
        """Add the range between the old end and the new one."""
        start, self.end = self.end, end
        self.give(start, end)

    def give(self, start: int, stop: int) -> None:
        """Take back a range, and join it with its neighbours."""
        at = bisect.bisect(self.free, (start, stop))
        if at < len(self.free) and self.free[at][0] == stop:
            stop = self.free.pop(at)[1]
        if at and self.free[at - 1][1] == start:
            at -= 1
            start = self.free.pop(at)[0]
        self.free.insert(at, (start, stop))


class Transfer:
    """One write or read of the helper: between bytes in memory and a range of the file."""

    def __init__(self, data: memoryview, source: memoryview | None, offset: int, out: bool) -> None:
        self.data: memoryview | None = data
        self.source = source
        self.offset = offset
        self.out = out
        self.begun = False
        self.done = threading.Event()
        self.error: Exception | None = None

    def run(self, file: int, keep_cache: bool) -> None:
        """Do it; let go of the memory before it is reported as done."""
        data, source = self.data, self.source
        assert data is not None
        try:
            if source is not None:  # not written yet, or never: from memory to memory
                data[:] = source
            elif self.out:
                _write(file, data, self.offset, keep_cache)
            else:
                _read(file, data, self.offset, keep_cache)
        except Exception as error:  # raised again by the wait; the helper goes on
            self.error = error.with_traceback(None)  # whose frames would keep the memory alive
        finally:
            self.data = self.source = data = source = None
            self.done.set()


def _write(file: int, data: memoryview, offset: int, keep_cache: bool) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(file, data[written : written + IO_BYTES], offset + written)
    if not keep_cache:
        os.fdatasync(file)  # what is not on the disk yet would stay in the cache
        os.posix_fadvise(file, offset, len(data), os.POSIX_FADV_DONTNEED)


def _read(file: int, data: memoryview, offset: int, keep_cache: bool) -> None:
    there = 0
    while there < len(data):
        count = os.preadv(file, [data[there : there + IO_BYTES]], offset + there)
        if count == 0:
            raise OSError(f"the file ends {len(data) - there} bytes before the array does")
        there += count
    if not keep_cache:
        os.posix_fadvise(file, offset, len(data), os.POSIX_FADV_DONTNEED)


class Helper:
    """One thread that runs transfers.

    Parameters
    ----------
    file
        Descriptor; closed when the thread ends.
    keep_cache
        Leave written and read bytes in the kernel's page cache.
    """

    def __init__(self, file: int, keep_cache: bool) -> None:
        self.file, self.keep_cache = file, keep_cache
        self.reads: collections.deque[Transfer] = collections.deque()
        self.writes: collections.deque[Transfer] = collections.deque()
        self.changed = threading.Condition()
        self.stopping = False
        self.thread = threading.Thread(target=self._run, name="stowplan-swap", daemon=True)
        self.thread.start()

    def put(self, transfer: Transfer) -> None:
        """Queue a transfer."""
        with self.changed:
            (self.writes if transfer.out else self.reads).append(transfer)
            self.changed.notify()

    def cancel(self, transfer: Transfer) -> bool:
        """Cancel a transfer that has not begun."""
        with self.changed:
            if transfer.begun or transfer.done.is_set():
                return False
            (self.writes if transfer.out else self.reads).remove(transfer)
            transfer.data = transfer.source = None
            return True

    def stop(self) -> None:
        """Finish what is waiting, then end the thread and close the file."""
        with self.changed:
            self.stopping = True
            self.changed.notify()
        if self.thread is not threading.current_thread():
            self.thread.join()

    def _run(self) -> None:
        while True:
            with self.changed:
                while not (self.reads or self.writes or self.stopping):
                    self.changed.wait()
                if not (self.reads or self.writes):
                    break
                transfer = (self.reads or self.writes).popleft()
                transfer.begun = True
            transfer.run(self.file, self.keep_cache)
            del transfer
        os.close(self.file)
