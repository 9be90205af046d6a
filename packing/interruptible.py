"""Ctrl-C for compiled solvers that take a flag to stop them.

Python runs its signal handlers on the main thread, between two instructions: never while that thread is inside C++. So
the solver gets a thread of its own, and the main thread waits in Python, where Ctrl-C reaches it and sets the flag.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from .registry import PackingOptions


class Flag(Protocol):
    """What stops a solver once it is set, from any thread: the ``Cancel`` of the solver's binding."""

    def set(self) -> None:
        """Stop the solver with the best so far."""


T = TypeVar("T")
C = TypeVar("C", bound=Flag)

_POLL = 0.05  # seconds; waiting without a limit would not be interruptible everywhere


def interruptible(solve: Callable[[C], T], cancel: C) -> tuple[T, bool]:
    """Run a solver that is given the flag; return what it returns, and whether Ctrl-C has set the flag.

    On any other thread than the main one the solver runs directly: Ctrl-C never arrives there.
    """
    if threading.current_thread() is not threading.main_thread():
        return solve(cancel), False
    results: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(solve(cancel))
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    worker = threading.Thread(target=run, name="stowplan-solver")
    worker.start()
    interrupted = False
    while not done.is_set():
        try:
            done.wait(_POLL)  # an interrupted join() would take the thread for finished
        except KeyboardInterrupt:
            cancel.set()
            interrupted = True
    worker.join()
    if errors:
        raise errors[0]
    return results[0], interrupted


def reporter(options: PackingOptions, cancel: Flag) -> Callable[[int, float], None] | None:
    """Pass peaks on to the caller, and its wish to stop back to the solver."""
    report = options.report
    if report is None:
        return None

    def progress(peak: int, seconds: float) -> None:
        if not report(peak):
            cancel.set()

    return progress
