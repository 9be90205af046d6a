r"""Steps that the core has found and ended by itself: a thread takes their outcomes, so no request waits for Python.

::

    program's thread      ... request | request | request ...      the core ends a step and begins the next
                                       \ outcome  ^
    outcome thread                       collect() |               record, confirm, submit what is to be planned, take
                                                                   plans up, and say what to expect; perhaps rest
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

LONGEST_REST = 0.5
"""Seconds; longer, and a program that begins to repeat would wait for its plan."""


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
