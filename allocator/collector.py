r"""Steps that the core has found and ended by itself: a thread collects them, so that no request waits for Python.

::

    program's thread      ... request | request | request ...      the core ends a step and begins the next
                                       \ outcome  ^
    collector's thread                   collect() |               record, confirm, submit what is to be planned, take
                                                                   plans up, and say what to expect
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Signal(Protocol):
    """What the collector waits for."""

    def wait_for_outcomes(self) -> bool:
        """Wait for the next outcomes; False after close()."""

    def close(self) -> None:
        """End all waits, now and to come."""


def start_collector(signal: Signal, collect: Callable[[], Any], enter: Callable[[], Any]) -> None:
    """Call a bound method on a thread of its own, whenever there is something to collect, as long as its owner lives.

    Parameters
    ----------
    enter
        Called first, on that thread.
    """
    method = weakref.WeakMethod(collect)
    threading.Thread(
        target=_run, args=(signal, method, enter), name="stowplan-collector", daemon=True
    ).start()
    # Not at exit: the thread sleeps without the GIL, and is best left alone there.
    weakref.finalize(collect.__self__, signal.close).atexit = False  # type: ignore[attr-defined]


def _run(signal: Signal, method: weakref.WeakMethod[Callable[[], Any]], enter: Callable[[], Any]) -> None:
    enter()
    while signal.wait_for_outcomes():
        collect = method()
        if collect is None:
            return
        try:
            collect()
        except RuntimeError as error:
            # Executors close a moment before the main thread counts as gone.
            if threading.main_thread().is_alive() and "interpreter shutdown" not in str(error):
                raise
            return  # the interpreter goes down, and no job is taken any more
        del collect
