"""Ctrl-C for the compiled solvers.

Python runs its signal handlers on the main thread, between two instructions: never while that thread is inside C++. So
the solver gets a thread of its own, and the main thread waits in Python, where Ctrl-C reaches it and sets the flag.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ._descent import Cancel

T = TypeVar("T")

_POLL = 0.05  # seconds; waiting without a limit would not be interruptible everywhere


def interruptible(solve: Callable[[], T], cancel: Cancel) -> tuple[T, bool]:
    """Run a solver that stops when the flag is set; return what it returns, and whether Ctrl-C has set the flag.

    On any other thread than the main one the solver runs directly: Ctrl-C never arrives there.
    """
    if threading.current_thread() is not threading.main_thread():
        return solve(), False
    results: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(solve())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    worker = threading.Thread(target=run, name="stowplan-schedule")
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
