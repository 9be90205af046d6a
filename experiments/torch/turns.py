"""Turns of steps, and what they use: a worker's side.

A *turn* is some steps in a row. A worker reads numbers of steps from standard input, a line each, and answers each with
the turn's `Usage` as a line of JSON, with a pool's counts; at the end of its input it answers with a line of what it
has come to.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..measures.usage import of_this_process


@dataclass(frozen=True)
class Usage:
    """What this process, with all its threads, used for a turn.

    Attributes
    ----------
    steps
        How many.
    cpu
        User and system time, in seconds.
    faults
        Minor page faults.
    peak
        The largest resident set in the turn, in bytes (in the process's life, if the system does not count from the
        turn's beginning).
    losses
        Digest of each step's loss.
    """

    steps: int
    cpu: float
    faults: int
    peak: int
    losses: str


def counted(steps: int, run: Callable[[int], str]) -> Usage:
    """Run a turn by `run`, which takes the number of steps and returns the digest of their losses."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the largest resident set is that of now
    before = resource.getrusage(resource.RUSAGE_SELF)
    losses = run(steps)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Usage(steps, cpu, after.ru_minflt - before.ru_minflt, of_this_process("VmHWM"), losses)
