"""Threads of ours, and what they have used: CPU time and page faults that are not the program's.

Nothing of `concurrent.futures`: it brings `logging`, which takes part in forks and must not come in the middle of one,
and to import both takes as long as to make a small plan.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from typing import NamedTuple


class Usage(NamedTuple):
    """Minor page faults, and seconds of CPU time."""

    faults: int
    cpu_seconds: float


_mutex = threading.Lock()
_running: set[threading.Thread] = set()
_ended = Usage(0, 0.0)


def start_thread(function: Callable[[], object], name: str, *, daemon: bool) -> threading.Thread:
    """Call a function on a new thread, whose usage is ours.

    Parameters
    ----------
    function, name, daemon
        As for `threading.Thread`; ``stowplan-`` is put before the name.

    Raises
    ------
    RuntimeError
        The interpreter goes down, and starts no thread any more.
    """

    def run() -> None:
        with _mutex:
            _running.add(thread)
        try:
            function()
        finally:
            _note_end(thread)

    thread = threading.Thread(target=run, name=f"stowplan-{name}", daemon=daemon)
    thread.start()
    return thread


def _note_end(thread: threading.Thread) -> None:
    global _ended
    with _mutex:
        used = _used_by(thread)
        _running.discard(thread)
        _ended = Usage(_ended.faults + used.faults, _ended.cpu_seconds + used.cpu_seconds)


def used() -> Usage:
    """Return what all of them have used since the process began, or since the fork that it began with."""
    with _mutex:
        parts = [_ended, *(_used_by(thread) for thread in _running)]
    return Usage(sum(part.faults for part in parts), sum(part.cpu_seconds for part in parts))


def begin_anew() -> None:
    """Forget all: a fork has left these threads behind."""
    global _mutex, _ended
    _mutex = threading.Lock()
    _running.clear()
    _ended = Usage(0, 0.0)


def _used_by(thread: threading.Thread) -> Usage:
    """Return what a thread has used; nothing where the system does not tell."""
    try:
        if thread is threading.current_thread() and hasattr(resource, "RUSAGE_THREAD"):
            own = resource.getrusage(resource.RUSAGE_THREAD)
            return Usage(own.ru_minflt, own.ru_utime + own.ru_stime)
        with open(f"/proc/self/task/{thread.native_id}/stat", "rb") as file:
            faults = int(file.read().rpartition(b")")[2].split()[7])
        return Usage(faults, time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0)))
    except (OSError, IndexError, ValueError):  # it has ended, or there is no /proc
        return Usage(0, 0.0)
