"""Solving off the caller's thread.

One worker per pool; the solvers release the GIL. Results wait until they are collected, at the next step boundary.

What the worker does in Python would keep the program waiting all the same: the interpreter lets a thread that waits for
the GIL wait up to 5 ms (`sys.getswitchinterval`). So jobs come in pieces of a millisecond or less, and between them the
worker steps aside.

`concurrent.futures` is not imported later, on a thread of ours: it brings `logging`, which takes part in forks, and
must not come in the middle of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
        self._executor: ThreadPoolExecutor | None = None
        self._jobs: list[Future[T]] = []

    @property
    def busy(self) -> bool:
        """Whether there are jobs that are not done, or whose results have not been collected."""
        return bool(self._jobs)

    def submit(self, job: Callable[[], T]) -> None:
        """Start a job when those before it are done."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                1, thread_name_prefix="stowplan-planner", initializer=set_aside, initargs=(True,)
            )
        self._jobs.append(self._executor.submit(job))

    def collect(self) -> list[T]:
        """Return the results of the jobs that are done, once each, in the order of their start."""
        done = []
        while self._jobs and self._jobs[0].done():
            done.append(self._jobs.pop(0).result())
        return done

    def wait(self, timeout: float | None) -> bool:
        """Wait until all jobs are done, at most `timeout` seconds; return whether they are."""
        if not self._jobs:
            return True
        began = time.monotonic()
        while self._jobs:
            left = None if timeout is None else timeout - (time.monotonic() - began)
            if left is not None and left <= 0:
                return False
            _, waiting = wait(self._jobs, timeout=left)
            if not waiting:
                return True
        return True
