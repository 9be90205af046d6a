"""What a fork makes of pools: `multiprocessing` with the start method "fork", `os.fork`.

The child has a copy of everything, the arenas' bytes too (private memory: each side writes to pages of its own), but of
the threads only the one that forked. So:

- before the fork the pools' locks are taken, as no thread may be in the middle of something that it cannot finish;
- in the child, plans that were being made are forgotten, and so is a step of a thread that is not there. The next
  unplanned step is recorded again, and a new thread makes its plan;
- the locks of a core that NumPy alone calls need nothing: they are held with the GIL only, and the thread that forks
  has it. Those of a core that other libraries call are held over the fork (core/host/fork_locks.cpp).

`subprocess`, and the start methods "spawn" and "forkserver", copy nothing.
"""

from __future__ import annotations

import functools
import os

from . import planner_thread
from ._core import after_fork, after_fork_in_child, before_fork


@functools.cache
def register() -> None:
    """Have what `watch_forks` watches told of forks."""
    in_child = functools.partial(after_fork_in_child, planner_thread.reset_after_fork)
    os.register_at_fork(before=before_fork, after_in_parent=after_fork, after_in_child=in_child)
