"""Plans that several lanes need: threads that run the same step have it packed once.

Every lane of a pool decides for itself, so eight threads that run one step ask for eight plans at about the same time.
A plan is known by what it was made of; the first thread that asks makes it, and the others wait for it. It is kept
while it is among the last `capacity` that were asked for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..profiler import Profile
    from .plan import Plan


class _Made:
    """A plan that is made, or being made; or what was raised."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.plan: Plan | None = None
        self.error: BaseException | None = None


class SharedPlans:
    """The plans that were made last, by what they were made of.

    Parameters
    ----------
    capacity
        Plans to keep, 1 or more.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all, those that are being made as well: a fork has left behind who makes them."""
        self._mutex = threading.Lock()
        self._plans: OrderedDict[Hashable, _Made] = OrderedDict()

    def find(self, made_of: Hashable, make: Callable[[], Plan]) -> Plan:
        """Return the plan that was made of this, or make it; what `make` raises, all raise who wait for it."""
        with self._mutex:
            made = self._plans.get(made_of)
            is_new = made is None
            if made is None:
                made = self._plans[made_of] = _Made()
                while len(self._plans) > self._capacity:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(made_of)
        if is_new:
            try:
                made.plan = make()
            except BaseException as error:
                with self._mutex:
                    self._plans.pop(made_of, None)
                made.error = error
            made.is_done.set()
        made.is_done.wait()
        if made.plan is None:
            assert made.error is not None
            raise made.error
        return made.plan


def contents(profile: Profile) -> Hashable:
    """Return what tells a step's requests and frees from those of others. O(n)."""
    columns = (profile.size, profile.start, profile.end, profile.stream)
    return (profile.period, *(column.tobytes() for column in columns))
