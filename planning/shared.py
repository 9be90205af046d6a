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
    from concurrent.futures import Future

    from ..profiler import Profile
    from .plan import Plan


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
        self._plans: OrderedDict[Hashable, Future[Plan]] = OrderedDict()

    def find(self, made_of: Hashable, make: Callable[[], Plan]) -> Plan:
        """Return the plan that was made of this, or make it; what `make` raises, all raise who wait for it."""
        from concurrent.futures import Future

        with self._mutex:
            plan = self._plans.get(made_of)
            is_new = plan is None
            if plan is None:
                plan = self._plans[made_of] = Future()
                while len(self._plans) > self._capacity:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(made_of)
        if is_new:
            try:
                plan.set_result(make())
            except BaseException as error:
                with self._mutex:
                    self._plans.pop(made_of, None)
                plan.set_exception(error)
        return plan.result()


def fingerprint(profile: Profile) -> bytes:
    """Return what tells a step's requests and frees from those of others: 32 bytes. O(n), without the GIL."""
    import hashlib

    known = hashlib.blake2b(str(profile.period).encode(), digest_size=32)
    for column in (profile.size, profile.start, profile.end, profile.stream):
        known.update(column.tobytes())
    return known.digest()
