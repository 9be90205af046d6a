"""How tests run things: steps of a pool one after the other, and functions in threads of their own."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def run(pool: Any, steps: int, work: Callable[[], object], key: object = None) -> None:
    """Run steps of a pool; what it learns of one is there for the next."""
    for _ in range(steps):
        with pool.step(key):
            work()
        pool.wait()


def in_threads(*works: Callable[[], object]) -> None:
    """Run functions at once, each in a thread of its own; raise what one of them raises."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(works))

    def caught(work: Callable[[], object]) -> None:
        try:
            start.wait(600)
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=caught, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert not any(thread.is_alive() for thread in threads), "a deadlock"
    if errors:
        raise errors[0]


@contextmanager
def traced() -> Iterator[None]:
    """Have memory traced. That of all threads is, so those that search for an earlier test's schedule end first."""
    for thread in threading.enumerate():
        if thread.name == "stowplan-schedule":
            thread.join(600)
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
