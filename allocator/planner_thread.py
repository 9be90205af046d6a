r"""The thread that makes a lane's plans, while there are jobs.

::

    program's thread   ... step | step | step | step ...      takes up what is ready between two steps
                                \ job       ^
    planner's thread             pack, install

No request waits for it. The solvers release the GIL; what is done in Python would keep the program waiting
all the same, as the interpreter lets a thread that waits for the GIL wait up to 5 ms (`sys.getswitchinterval`). So jobs
come in pieces of a millisecond or less, and between them the planner steps aside.

`concurrent.futures` is not used: it imports `logging`, whose fork hooks may deadlock in the middle of a fork, and to
import both takes as long as to make a small plan.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from ._core import set_aside

T = TypeVar("T")


class NoThreadError(RuntimeError):
    """No thread can be started for a job."""


STEP_ASIDE = 1e-4
"""Seconds; enough for a waiting thread to wake up and take the GIL."""


def let_others_run() -> None:
    """Step aside between two pieces of a job."""
    time.sleep(STEP_ASIDE)


_working: set[Planner[Any]] = set()


@atexit.register
def _wait_for_all() -> None:
    """Let the interpreter go down when no job runs any more: a solver is not cut off."""
    global _is_over
    _is_over = True
    for planner in list(_working):
        planner.wait(None)


_is_over = False


def reset_after_fork() -> None:
    """Forget the planners whose threads a fork has left behind."""
    _working.clear()


class Planner(Generic[T]):
    """Run jobs, which do not raise, one after another in the background.

    A signal's exception leaves no lock held and no thread that waits for ever: to take a plain lock and to call
    `start_new_thread` are one call each; `threading.Condition` and `Thread` run Python's code, which a signal can cut.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._idle: list[SimpleQueue[None]] = []  # of those who wait for the last job's end
        self._waiting: deque[Callable[[], T]] = deque()
        self._done: list[T] = []
        self._works = False

    def submit(self, job: Callable[[], T]) -> None:
        """Start a job when those before it are done.

        Raises
        ------
        NoThreadError
            No thread can be started for it.
        """
        with self._mutex:
            if not self._works:
                if _is_over:
                    raise NoThreadError("the interpreter goes down")
                try:
                    start_new_thread(self._run, ())
                except RuntimeError as error:
                    if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                        raise  # by the handler of a signal, in a frame of its own
                    raise NoThreadError(str(error)) from None
                self._works = True
                _working.add(self)
            self._waiting.append(job)

    def _run(self) -> None:
        sys.settrace(threading.gettrace())  # as a `Thread` does, for coverage, debuggers and profilers
        sys.setprofile(threading.getprofile())
        set_aside(True)
        self._work()

    def _work(self) -> None:
        while True:
            with self._mutex:
                if not self._waiting:
                    self._works = False
                    _working.discard(self)
                    while self._idle:
                        self._idle.pop().put(None)
                    return
                job = self._waiting.popleft()
            result = job()
            with self._mutex:
                self._done.append(result)

    @property
    def has_results(self) -> bool:
        """Whether jobs are done whose results have not been collected."""
        return bool(self._done)

    def collect(self) -> list[T]:
        """Return the results of the jobs that are done, once each, in the order of their start."""
        with self._mutex:
            done, self._done = self._done, []
        return done

    def wait(self, timeout: float | None) -> bool:
        """Wait until all jobs are done, at most `timeout` seconds; return whether they are."""
        idle: SimpleQueue[None] = SimpleQueue()
        with self._mutex:
            if not self._works:
                return True
            self._idle.append(idle)
        with suppress(Empty):
            idle.get(timeout=timeout)
            return True
        return False
