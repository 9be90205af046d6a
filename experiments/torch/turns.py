"""Turns of steps, and what they use: a worker's side.

A *turn* is some steps in a row. A worker reads numbers of steps from standard input, a line each, and answers each with
the turn's `Usage` as a line of JSON, with a pool's counts; at the end of its input it answers with a line of what it
has come to.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO


@dataclass(frozen=True)
class Usage:
    """What this process, with all its threads, used for a turn.

    Attributes
    ----------
    steps
        How many.
    cpu, system
        User and system time together, and system time alone, in seconds.
    faults
        Minor page faults.
    rss, peak
        Resident set in bytes: at the end, and the largest in the turn (in the process's life, if the system does not
        count from its beginning).
    losses
        Digest of each step's loss.
    """

    steps: int
    cpu: float
    system: float
    faults: int
    rss: int
    peak: int
    losses: str


def counted(steps: int, run: Callable[[int], str]) -> Usage:
    """Run a turn by `run`, which takes the number of steps and returns the digest of their losses."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the largest resident set is that of now
    before = resource.getrusage(resource.RUSAGE_SELF)
    losses = run(steps)
    after = resource.getrusage(resource.RUSAGE_SELF)
    system = after.ru_stime - before.ru_stime
    return Usage(
        steps,
        after.ru_utime - before.ru_utime + system,
        system,
        after.ru_minflt - before.ru_minflt,
        _status("VmRSS"),
        _status("VmHWM"),
        losses,
    )


def _status(key: str) -> int:
    """Return a value of this process's status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")


def take_answers() -> TextIO:
    """Return where answers go; whatever else is printed goes to standard error from now on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def serve(
    answers: TextIO, turn: Callable[[int], Mapping[str, Any]], end: Callable[[], Mapping[str, Any]]
) -> None:
    """Run turns as standard input says, and answer."""
    for line in sys.stdin:
        print(json.dumps(turn(int(line))), file=answers, flush=True)
    print(json.dumps(end()), file=answers, flush=True)
