"""A child process, in which a function runs without a change of the program's state, and the memory that it may take.

::

    program    fork |......... reads what is told .........| the last of it, and why there is no more
    child           | run  tell  run  tell  run ...          ends; or is ended, at its seconds or its bytes

The child is a copy of the program with one thread. What it prints goes nowhere; what it writes to files stays, and the
program goes on where it was in those that are open. A function that waits for another thread of the program, or for a
device that the program uses, fails or waits there: it is ended in time, with all processes that it has started.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import resource
import signal
import stat
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from ..common.host_memory import control_groups
from ..common.units import human_bytes

IN_CHILD = False
"""Whether this process is such a child."""
DONE = ...
"""What a child tells last."""
M_MMAP_THRESHOLD = -3
SPARE = 1 << 28
"""Bytes that a child may take besides: buffers of libraries, and Python's own."""


def in_child(
    work: Callable[[Callable[[Any], None]], None], seconds: float, memory: int
) -> tuple[Any, str, bool]:
    """Run some work in a child process.

    Parameters
    ----------
    work
        Gets a function that tells the program something, which pickle can write.
    seconds
        Seconds after which it is ended.
    memory
        Bytes that it may allocate; more is a `MemoryError` there.

    Returns
    -------
    What was told last, None if nothing was; why the child did not come to its end, if so; and whether its seconds were
    over.
    """
    end, (reader, writer) = time.monotonic() + seconds, Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, from Python 3.12 on: see above
        child = os.fork()
    if not child:
        _be_child(work, writer, memory)
    writer.close()
    told: list[Any] = [None]
    try:
        while reader.poll(None if seconds == math.inf else max(end - time.monotonic(), 0)):
            told.append(reader.recv())
            if told[-1] is DONE:
                return told[-2], "", False
        return told[-1], f"it did not end within {seconds:.3g} s", True
    except EOFError:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        ending = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return told[-1], f"its process ended with {ending}", False
    finally:
        reader.close()
        for kill in (os.killpg, os.kill):  # with what it has started
            with suppress(ProcessLookupError):
                kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _be_child(work: Callable[[Callable[[Any], None]], None], writer: Any, memory: int) -> None:
    global IN_CHILD
    code, IN_CHILD = 1, True
    try:
        os.setsid()
        _open_anew()
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")  # it goes first
        with suppress(OSError, ValueError, StopIteration):
            data = 1024 * _status("VmData") + memory + SPARE
            _, most = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (data if most < 0 else min(data, most), most))
        with suppress(AttributeError):  # not glibc
            ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 16)  # what is freed goes back at once
        for out in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), out)
        work(writer.send)
        writer.send(DONE)
        code = 0
    finally:
        os._exit(code)


def _open_anew() -> None:
    """Give this process places of its own in the files that are open: a fork shares them with its parent."""
    with suppress(OSError):
        for number in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):
                if stat.S_ISREG(os.fstat(number).st_mode):
                    flags, place = fcntl.fcntl(number, fcntl.F_GETFL), os.lseek(number, 0, os.SEEK_CUR)
                    again = os.open(f"/proc/self/fd/{number}", flags & (os.O_ACCMODE | os.O_APPEND))
                    os.lseek(again, place, os.SEEK_SET)
                    os.dup2(again, number, inheritable=False)
                    os.close(again)


def _status(name: str) -> int:
    """Return a number of this process, as Linux tells it: KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name + ":")).split()[1])


def resident_peak(anew: bool = False) -> int:
    """Return the most bytes that were resident, 0 where the system does not tell; ``anew``: what is resident now."""
    with suppress(OSError, ValueError, StopIteration):
        if anew:
            Path("/proc/self/clear_refs").write_text("5")
        return 1024 * _status("VmHWM")
    return 0


def available(share: float = 1.0) -> tuple[int, str]:
    """Return the bytes that this process may still take, and what limits them: machine, control group or RLIMIT.

    Parameters
    ----------
    share
        The share of the free bytes, above 0 and up to 1.
    """
    found = [(max(count, 0), name) for name, count in _limits()]
    count, name = min(found, default=(sys.maxsize, "no limit known"))
    return int(count * share), f"{share:.0%} of {human_bytes(count)}, {name}" if share < 1 else name


def _limits() -> list[tuple[str, int]]:
    found = []
    with suppress(OSError, ValueError, IndexError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable"))
        found.append(("the machine's", 1024 * int(line.split()[1])))
    found.extend(("the control group's", limit - usage) for limit, usage in control_groups())
    with suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            found.append(("RLIMIT_AS", most - pages * resource.getpagesize()))
    return found
