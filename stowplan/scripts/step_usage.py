"""What a step costs before a pool has a plan and after it: page faults and CPU time.

A thread looks at the pool's counts now and then, and takes down what the process has used whenever steps have ended::

    steps      0      1     2     3     4     5     6     7 ...
    replayed   0      0     0     0     0     9     18    27 ...
                      |<-- before -->|        |<--- after --->|

What the pool's own threads have used (planning) counts for neither.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ..allocator.own_threads import start_thread, used

_OFTEN, _SELDOM = 0.002, 0.1  # seconds between two looks
_OF_THE_TIME = 50  # until there is a plan, it looks so often in the time that has passed


class StepCost(NamedTuple):
    """What a step cost on average.

    Attributes
    ----------
    steps
        How many were measured.
    faults
        Minor page faults a step.
    cpu_seconds
        CPU time a step, of all threads of the program.
    """

    steps: int
    faults: float
    cpu_seconds: float


class Sample(NamedTuple):
    """The process after so many steps."""

    steps: int
    faults: int
    cpu_seconds: float


class StepUsage:
    """Measures the steps of a pool while entered.

    Parameters
    ----------
    progress
        Returns how many of the pool's steps have ended, and how many requests were replayed; called on a thread of its
        own.
    """

    def __init__(self, progress: Callable[[], tuple[int, int]]) -> None:
        self._progress = progress
        self._parts: dict[
            bool, tuple[Sample, Sample]
        ] = {}  # by whether the plan serves: first and last sample
        self._last = 0
        self._over = threading.Event()

    def __enter__(self) -> StepUsage:
        self._thread = start_thread(self._watch, "usage", daemon=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> bool:
        """Take a sample, if steps have ended since the last one; return whether the plan serves."""
        steps, replayed = self._progress()
        serves = replayed > 0
        if steps and (steps != self._last or serves not in self._parts):
            self._last = steps
            sample = _sample(steps)
            first, _ = self._parts.get(serves, (sample, sample))
            self._parts[serves] = first, sample
        return serves

    @property
    def before(self) -> StepCost | None:
        """Before the plan served; None if no whole step was seen then."""
        return self._cost(False)

    @property
    def after(self) -> StepCost | None:
        """Since the plan has served; None if no whole step was seen since."""
        return self._cost(True)

    def _cost(self, serves: bool) -> StepCost | None:
        if serves not in self._parts:
            return None
        first, last = self._parts[serves]
        steps = last.steps - first.steps
        if not steps:
            return None
        faults, cpu = last.faults - first.faults, last.cpu_seconds - first.cpu_seconds
        return StepCost(steps, max(faults, 0) / steps, max(cpu, 0.0) / steps)

    def _watch(self) -> None:
        began = time.monotonic()
        pause = _OFTEN
        while not self._over.wait(pause):
            passed = time.monotonic() - began
            pause = _SELDOM if self.look() else min(max(passed / _OF_THE_TIME, _OFTEN), _SELDOM)


def _sample(steps: int) -> Sample:
    whole, own = resource.getrusage(resource.RUSAGE_SELF), used()
    return Sample(steps, whole.ru_minflt - own.faults, whole.ru_utime + whole.ru_stime - own.cpu_seconds)
