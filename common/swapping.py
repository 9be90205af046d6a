"""Swap arrays out of memory to a file, and back before they are needed.

::

    caller    evict(a)  ...  wait_evicted()  del a  ...  out = empty()  start_fetch(out)  ...  wait_fetched()
    helper       write -------->|                                          read ------------------->|

A *ticket* stands for one evicted array. Memory is allocated and let go on the caller's thread only, at the calls above,
so that a pool sees the same requests in the same order in every step: the ticket holds the array until
``wait_evicted``, and ``start_fetch`` reads into an array that the caller has made.

The file is private (0600), has no name, and ends with the process. Room in it is reserved before a write: if the disk
is full, ``evict`` raises, and nothing is lost. If a write or read fails, the wait raises; the ticket then still holds
the array, if it was not yet written. Freed ranges are used again, the first that is large enough. Written bytes are
removed from the kernel's page cache, where they would take the memory that the eviction was to free.

The file is not encrypted: activations may reveal the data that they were computed from.
"""

from __future__ import annotations

import collections
import os
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import StowplanError
from .swap_transfers import Helper, Ranges, Transfer

__all__ = ["SwapCounts", "SwapError", "SwapFile", "Ticket"]

ALIGNMENT = 4096
"""Bytes; ranges begin at multiples of it, as pages of the page cache do."""

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems that keep their files in the memory that is to be freed."""


class SwapError(StowplanError, OSError):
    """An array could not be swapped: no room, or a write or read failed. The message tells which, and why."""


@dataclass
class SwapCounts:
    """Arrays and bytes that a swap has moved out and in so far, and seconds that the caller waited for it."""

    evicted: int = 0
    fetched: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    seconds_waited: float = 0.0


class Ticket:
    """One evicted array, until `close`. Made by `SwapFile.evict`; used on one thread only."""

    def __init__(self, swap: SwapFile, array: Any, offset: int, reserved: int) -> None:
        self._swap = swap
        self._array: Any = array
        self._offset, self._reserved = offset, reserved
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes
        self._order = orders(array)
        self._read: Transfer | None = None
        self._write = Transfer(_bytes_of(array), None, offset, out=True)
        self._closed = False
        swap._helper.put(self._write)

    @property
    def array(self) -> Any:
        """The array, which the ticket holds until `wait_evicted`, and if that raises."""
        return self._array

    @property
    def evicted(self) -> bool:
        """Whether the write is over."""
        return self._write.done.is_set()

    def wait_evicted(self) -> None:
        """Wait until the array is written, and let go of it.

        Raises
        ------
        SwapError
            It could not be written. The ticket still holds it, and `start_fetch` takes it from there.
        """
        self._swap._wait(self._write, f"write {self.nbytes} bytes")
        if self._read is not None:
            self._read.done.wait()  # it may be reading from the array itself
        if self._array is not None:
            self._array = None
            self._swap.counts.evicted += 1
            self._swap.counts.bytes_out += self.nbytes

    def start_fetch(self, out: Any) -> None:
        """Start reading into an array of the caller's.

        Parameters
        ----------
        out
            An array of the same shape, type and order as the one evicted. Not to be touched until `wait_fetched`.
        """
        self._swap._check_open()
        if self._closed:
            raise SwapError("the ticket is closed; expected: start_fetch before close")
        fits = out.shape == self.shape and out.dtype == self.dtype and orders(out) & self._order
        if not fits or not out.flags.writeable:
            raise ValueError(
                f"out is {out.dtype} {out.shape} in order {_said(out)}{'' if out.flags.writeable else ', read-only'}; "
                f"expected {self.dtype} {self.shape} in order {min(self._order)}"
            )
        if self._read is not None:
            raise SwapError("the ticket is being fetched; expected: wait_fetched before the next start_fetch")
        source = None if self._array is None else _bytes_of(self._array)
        self._read = Transfer(_bytes_of(out), source, self._offset, out=False)
        self._swap._helper.put(self._read)

    def wait_fetched(self) -> None:
        """Wait until the array that `start_fetch` was given is filled.

        Raises
        ------
        SwapError
            It could not be read. The content of the array is undefined; another `start_fetch` may be tried.
        """
        read, self._read = self._read, None
        if read is None:
            raise SwapError("nothing is being fetched; expected: start_fetch before wait_fetched")
        self._swap._wait(read, f"read {self.nbytes} bytes")
        self._swap.counts.fetched += 1
        self._swap.counts.bytes_in += self.nbytes

    def close(self) -> None:
        """Release the array's range in the file, after the transfers in progress. A second call does nothing."""
        for transfer in self._give_up():
            transfer.done.wait()
        self._array = None

    def __del__(self) -> None:
        self._give_up()  # without waiting: this may run on any thread, on the helper's too

    def _give_up(self) -> list[Transfer]:
        """Cancel the transfer that has not begun, and give back the range; return the one in progress, if any."""
        if getattr(self, "_closed", True):
            return []
        self._closed = True
        if not self._swap._is_open():
            return []
        transfers = [transfer for transfer in (self._write, self._read) if transfer is not None]
        self._read = None
        going_on = [one for one in transfers if not one.done.is_set() and not self._swap._helper.cancel(one)]
        self._swap._returned.append((self._offset, self._reserved, going_on))
        return going_on


class SwapFile:
    """A file that arrays on the host are swapped out to.

    Parameters
    ----------
    directory
        Where the file is made: on a disk, not in memory. ``/var/tmp`` if not given, or where Python has its temporary
        files if there is none.
    budget
        Bytes that the file may grow to; as many as the disk has if not given.
    keep_cache
        Leave what was written in the kernel's page cache. Faster, and frees no memory by itself.

    Raises
    ------
    SwapError
        The file cannot be made there, or lies in memory.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        budget: int | None = None,
        *,
        keep_cache: bool = False,
    ) -> None:
        self.counts = SwapCounts()
        self._budget = budget
        self._ranges = Ranges()
        # Ranges of tickets that are closed. A queue, as a ticket may end while the ranges are being changed.
        self._returned: collections.deque[tuple[int, int, list[Transfer]]] = collections.deque()
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._where = os.fspath(directory) if directory is not None else _temporary_directory()
        self._file = _open(self._where)
        self._helper = Helper(self._file, keep_cache)
        self._finalize = weakref.finalize(self, self._helper.stop)
        self._finalize.atexit = False  # the helper is a daemon; the file goes with the process
        _files.add(self)

    @property
    def bytes_reserved(self) -> int:
        """Size of the file."""
        return self._ranges.end

    def evict(self, array: Any) -> Ticket:
        """Start writing an array.

        Parameters
        ----------
        array
            A contiguous array of NumPy, without Python objects. Not to be written to until the ticket's
            ``wait_evicted``.

        Raises
        ------
        SwapError
            There is no room for it. Nothing has changed.
        """
        self._check_open()
        if not isinstance(array, np.ndarray) or array.dtype.hasobject or not orders(array):
            raise ValueError(
                f"cannot swap a {type(array).__name__} of type {getattr(array, 'dtype', None)}, in order "
                f"{_said(array) if isinstance(array, np.ndarray) else 'unknown'}; "
                "expected a contiguous NumPy array without Python objects"
            )
        reserved = max(-(-array.nbytes // ALIGNMENT), 1) * ALIGNMENT
        return Ticket(self, array, self._reserve(reserved), reserved)

    def close(self) -> None:
        """Finish the transfers in progress, and release the file. A second call does nothing."""
        if self._is_open():
            self._finalize()

    def __enter__(self) -> SwapFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _reserve(self, size: int) -> int:
        """Return the start of a range of the file that has its blocks on the disk."""
        with self._lock:
            self._take_back()
            start = self._ranges.take(size)
            if start is not None:
                return start
            end = self._ranges.start_of_growth() + size
            if self._budget is not None and end > self._budget:
                raise SwapError(
                    f"no room to swap out {size} bytes: the file would have {end} bytes, its budget is {self._budget}"
                )
            try:
                os.posix_fallocate(self._file, self._ranges.end, end - self._ranges.end)
            except OSError as error:
                raise SwapError(
                    error.errno,
                    f"no room to swap out {size} bytes in {self._where}, where the file has {self._ranges.end} bytes: "
                    f"{error.strerror}",
                ) from error
            self._ranges.grow(end)
            start = self._ranges.take(size)
            assert start is not None
            return start

    def _take_back(self) -> None:
        """Free the ranges that tickets have returned, except those that the helper still uses."""
        for _ in range(len(self._returned)):
            start, size, going_on = self._returned.popleft()
            if all(transfer.done.is_set() for transfer in going_on):
                self._ranges.give(start, start + size)
            else:
                self._returned.append((start, size, going_on))

    def _wait(self, transfer: Transfer, what: str) -> None:
        """Wait for the helper, and count the seconds."""
        if not transfer.done.is_set():
            self._check_open()
            begin = time.perf_counter()
            transfer.done.wait()
            self.counts.seconds_waited += time.perf_counter() - begin
        if transfer.error is not None:
            reason = getattr(transfer.error, "strerror", None) or str(transfer.error)
            raise SwapError(
                f"could not {what} at {transfer.offset} of the swap file: {reason}"
            ) from transfer.error

    def _is_open(self) -> bool:
        return self._finalize.alive and self._process == os.getpid()

    def _check_open(self) -> None:
        if self._process != os.getpid():
            raise SwapError(
                "the swap file belongs to the process that made it; expected: a SwapFile of its own"
            )
        if not self._finalize.alive:
            raise SwapError("the swap file is closed")


_files: weakref.WeakSet[SwapFile] = weakref.WeakSet()


def _close_all() -> None:
    """Close each file in the child of a fork: there is no helper, and the file is the parent's."""
    for swap in list(_files):
        if swap._finalize.detach() is not None:
            os.close(swap._file)


os.register_at_fork(after_in_child=_close_all)


def _temporary_directory() -> str:
    """Return a directory for files of any size: ``/tmp`` is often in memory, ``/var/tmp`` is not."""
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()


def _open(directory: str) -> int:
    """Open a file without a name, for this process alone."""
    try:
        # O_TMPFILE where the file system has it, else a file that is removed at once; 0600, closed on exec.
        with tempfile.TemporaryFile(dir=directory, buffering=0) as made:
            kind = _file_system(made.fileno())
            if kind in IN_MEMORY:
                raise SwapError(
                    f"{directory} is on {kind}, which keeps files in memory; expected a directory on a disk"
                )
            return os.dup(made.fileno())
    except SwapError:
        raise
    except OSError as error:
        raise SwapError(
            error.errno,
            f"no swap file can be made in {directory}: {error.strerror}; expected a directory to write to",
        ) from error


def _file_system(file: int) -> str:
    """Return the type of the file system that a file lies on; empty if the kernel does not tell."""
    device = os.fstat(file).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(" - ")[1].split()[0] for line in lines if line.split()[2] == wanted), "")


def orders(array: Any) -> set[str]:
    """Return the orders in which an array is contiguous."""
    return {order for order in "CF" if array.flags[f"{order}_CONTIGUOUS"]}


def _said(array: Any) -> str:
    return min(orders(array), default="neither C nor F")


def _bytes_of(array: Any) -> memoryview:
    """Return the bytes of a contiguous array, in the order of its memory."""
    flat = (array if array.flags.c_contiguous else array.T).reshape(-1)
    return memoryview(flat.view(np.uint8)) if array.size else memoryview(bytearray())
