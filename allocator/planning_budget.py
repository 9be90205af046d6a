"""What planning may cost: a share of the program's own CPU time.

A program whose steps all differ gives the planner work with every step. On a core of its own that is unseen, but the
program may need all cores, or be billed for them. So a record is planned only while

    CPU time of planning  <=  share * (HEAD_START + CPU time of the rest of the process, since the pool began)

and what is beyond is *skipped*: the plan that there is, or upstream, serves. A step that goes on to differ from its
plan asks again, at the latest when the share allows for it. The first `FIRST` orders are carried out in any case. An
order that was allowed is carried out to its end, so planning may exceed its share by the orders under way.

O(1) an order, two clocks read. For all lanes of a pool, on any thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..planning.plan_dedup import SharedPlans

SHARE = 0.05
"""CPU time of planning for each second of the rest of the process."""

HEAD_START = 2.0
"""Seconds of CPU time for which the share is available from the beginning."""

FIRST = 4
"""Orders that are carried out whatever they cost: a few kinds of steps, with many blocks each. Under a bound they are
packed in haste, as all others (packing/portfolio.py)."""


class PlanningBudget:
    """The CPU time that planning has used, and may use: a share of the process's other CPU time; infinite: no bound.

    `of_thread` and `of_process` are clocks of CPU time, in seconds, as is `seconds`, the time used. `skipped` counts
    orders that were not given because there was no time left for them.
    """

    def __init__(
        self,
        share: float = SHARE,
        *,
        of_thread: Callable[[], float] = time.thread_time,
        of_process: Callable[[], float] = time.process_time,
    ) -> None:
        self._share = share
        self._of_thread, self._of_process = of_thread, of_process
        self.seconds = 0.0
        self.skipped = 0
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Compare what is used from now on only: after a fork the process's clock begins at 0."""
        self._mutex = threading.Lock()
        self._began, self._used_before = self._of_process(), self.seconds
        self._orders = 0

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound."""
        return not math.isinf(self._share)

    def has_time(self) -> bool:
        """Return whether there is time for one more order."""
        with self._mutex:
            if self._orders < FIRST:
                return True
            used = self.seconds - self._used_before
            others = self._of_process() - self._began - used
            return used <= self._share * (HEAD_START + max(others, 0.0))

    def takes_order(self) -> bool:
        """Return whether an order is to be carried out, and count it: as one, or as skipped."""
        takes = self.has_time()
        with self._mutex:
            self._orders += takes
            self.skipped += not takes
        return takes

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the CPU time of this thread, within what belongs to planning."""
        began = self._of_thread()
        try:
            yield
        finally:
            used = self._of_thread() - began
            with self._mutex:
                self.seconds += used


@dataclass
class Planning:
    """How a pool's plans are made, and what its lanes have in common.

    `failures` counts plans, or decisions about them, that came to nothing by an error; `failure` is the last one.
    """

    alignment: int  # bytes; of every planned offset
    solver: str
    max_plans: int  # that a lane keeps
    shared: SharedPlans
    budget: PlanningBudget
    failures: int = 0
    failure: str | None = None

    def failed(self, error: Exception) -> None:
        """Note the error that a plan failed by; the program goes on without it, and later steps order it again."""
        self.failures += 1
        self.failure = f"{type(error).__name__}: {error}"
