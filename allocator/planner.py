"""Solving off the caller's thread.

One worker per planner, while there are jobs; the solvers release the GIL. Results wait until they are collected, at the
next step boundary.

What the worker does in Python would keep the program waiting all the same: the interpreter lets a thread that waits for
the GIL wait up to 5 ms (`sys.getswitchinterval`). So jobs come in pieces of a millisecond or less, and between them the
worker steps aside.

Nothing of `concurrent.futures`: it brings `logging`, which takes part in forks and must not come in the middle of one,
and to import both takes as long as to make a small plan.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ._core import set_aside

T = TypeVar("T")


STEP_ASIDE = 1e-4
"""Seconds; enough for a waiting thread to wake up and take the GIL."""


def let_others_run() -> None:
    """Step aside between two pieces of a job."""
    time.sleep(STEP_ASIDE)


class Planner(Generic[T]):
    """Run jobs, which do not raise, one after another in the background."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], T]] = deque()
        self._done: list[T] = []
        self._works = False

    @property
    def busy(self) -> bool:
        """Whether there are jobs that are not done, or whose results have not been collected."""
        return self._works or bool(self._done)

    def submit(self, job: Callable[[], T]) -> None:
        """Start a job when those before it are done.

        Raises
        ------
        RuntimeError
            The interpreter goes down, and starts no thread any more.
        """
        with self._changed:
            if not self._works:
                # The interpreter waits for it before it goes down: a solver is not cut off.
                threading.Thread(target=self._work, name="stowplan-planner", daemon=False).start()
                self._works = True
            self._waiting.append(job)

    def _work(self) -> None:
        set_aside(True)
        while True:
            with self._changed:
                if not self._waiting:
                    self._works = False
                    self._changed.notify_all()
                    return
                job = self._waiting.popleft()
            result = job()
            with self._changed:
                self._done.append(result)

    def collect(self) -> list[T]:
        """Return the results of the jobs that are done, once each, in the order of their start."""
        if not self._done:
            return []
        with self._changed:
            done, self._done = self._done, []
        return done

    def wait(self, timeout: float | None) -> bool:
        """Wait until all jobs are done, at most `timeout` seconds; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._works, timeout)
