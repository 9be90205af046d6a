r"""The threads of a pool: one that makes a lane's plans, and one that learns from steps that the core has found.

::

    program's thread   ... request | request | request ...     the core ends a step that it has found, begins the next
                                        \ outcome  ^
    outcome thread                        collect()|           record, confirm, submit, take up, expect; perhaps rest
                                           \ job   | result
    planner's thread                         pack, install     one for each lane, while there are jobs

No request waits for either of them. The solvers release the GIL; what is done in Python would keep the program waiting
all the same, as the interpreter lets a thread that waits for the GIL wait up to 5 ms (`sys.getswitchinterval`). So jobs
come in pieces of a millisecond or less, and between them the planner steps aside.

Nothing of `concurrent.futures`: it brings `logging`, which takes part in forks and must not come in the middle of one,
and to import both takes as long as to make a small plan.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ._core import set_aside

T = TypeVar("T")

STEP_ASIDE = 1e-4
"""Seconds; enough for a waiting thread to wake up and take the GIL."""

LONGEST_REST = 0.5
"""Seconds; longer, and a program that begins to repeat would wait for its plan."""


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

    @property
    def has_results(self) -> bool:
        """Whether jobs are done whose results have not been collected."""
        return bool(self._done)

    def collect(self) -> list[T]:
        """Return the results of the jobs that are done, once each, in the order of their start."""
        with self._changed:
            done, self._done = self._done, []
        return done

    def wait(self, timeout: float | None) -> bool:
        """Wait until all jobs are done, at most `timeout` seconds; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._works, timeout)


def start_outcome_thread(
    wait: Callable[[], bool],
    close: Callable[[], None],
    collect: Callable[[], float],
    enter: Callable[[], Any] = lambda: None,
) -> threading.Thread:
    """Call a bound method on a thread of its own, whenever there are outcomes, as long as the method's owner lives.

    Parameters
    ----------
    wait
        Waits for the next outcomes; returns False after `close`.
    close
        Ends all waits, now and to come: called when the owner dies.
    collect
        The method: returns seconds to rest, `LONGEST_REST` at most. It is not kept alive.
    enter
        Called first, on that thread.
    """
    method = weakref.WeakMethod(collect)
    thread = threading.Thread(target=_run, args=(wait, method, enter), name="stowplan-outcomes", daemon=True)
    thread.start()
    # Not at exit: the thread sleeps without the GIL, and is best left alone there.
    weakref.finalize(collect.__self__, close).atexit = False  # type: ignore[attr-defined]
    return thread


def _run(
    wait: Callable[[], bool], method: weakref.WeakMethod[Callable[[], float]], enter: Callable[[], Any]
) -> None:
    enter()
    while wait():
        collect = method()
        if collect is None:
            return
        try:
            rest = collect()
        except RuntimeError as error:
            # Executors close a moment before the main thread counts as gone.
            if threading.main_thread().is_alive() and "interpreter shutdown" not in str(error):
                raise
            return  # the interpreter goes down, and no job is taken any more
        del collect
        if rest > 0:
            time.sleep(min(rest, LONGEST_REST))
