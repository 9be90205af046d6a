"""What a fork makes of pools: `multiprocessing` with the start method "fork", `os.fork`.

The child has a copy of everything, the arenas' bytes too (private memory: each side writes to pages of its own), but of
the threads only the one that forked. So:

- before the fork the pools' locks are taken, as no thread may be in the middle of something that it cannot finish;
- in the child, plans that were being made are forgotten, and so is a step of a thread that is not there. The next
  unplanned step is recorded again, and a new thread makes its plan;
- the locks of a core that NumPy alone calls need nothing: they are held with the GIL only, and the thread that forks
  has it. Those of a core that other libraries call are held over the fork (core/host/fork_locks.hpp).

`subprocess`, and the start methods "spawn" and "forkserver", copy nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from . import workers

if TYPE_CHECKING:
    from .lanes import Lanes
    from .pool import Pool

_watched: weakref.WeakSet[Pool] | None = None
_one_at_a_time = threading.Lock()
_locked: list[Lanes] = []


def watch(pool: Pool) -> None:
    """Have a pool told of forks, as long as it lives."""
    global _watched
    if _watched is None:
        _watched = weakref.WeakSet()
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
    _watched.add(pool)


def _before() -> None:
    _one_at_a_time.acquire()
    for pool in list(_watched or ()):
        for lanes in pool._all_lanes():
            lanes.lock()
            _locked.append(lanes)


def _after() -> None:
    while _locked:
        _locked.pop().unlock()
    _one_at_a_time.release()


def _after_in_child() -> None:
    workers.reset_after_fork()
    for pool in list(_watched or ()):
        pool._reset_after_fork()
    _after()
