"""Plans that several lanes need: threads that run the same step have it packed once.

Every lane of a pool decides for itself, so eight threads that run one step ask for eight plans at about the same time.
A plan is known by what it was made of; the first thread that asks makes it, and the others wait for it. It is kept
while it is among the last `capacity` that were asked for.

A plan of a step that keeps its results has nothing to do with what else is in the arena, so it fits into that of any
lane: it is offered to the others, by its step's key, and a thread need not see for itself what another one has seen.
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

MOST_OFFERS = 8
"""Plans of one key that are offered to other lanes."""


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
        self._offered: OrderedDict[Hashable, list[tuple[int, Plan]]] = OrderedDict()
        self._offers = 0

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

    def offer(self, key: Hashable, plan: Plan) -> None:
        """Offer a plan to all lanes. Of a key, the last `MOST_OFFERS` are kept; of keys, `capacity`."""
        with self._mutex:
            self._offers += 1
            mine = self._offered.setdefault(key, [])
            self._offered[key] = [*mine, (self._offers, plan)][-MOST_OFFERS:]
            self._offered.move_to_end(key)
            while len(self._offered) > self._capacity:
                self._offered.popitem(last=False)

    def offers(self, key: Hashable) -> list[tuple[int, Plan]]:
        """Return what is offered for a key: (number, plan), the larger the later. Not to be changed. O(1)."""
        return self._offered.get(key, [])


def fingerprint(profile: Profile) -> bytes:
    """Return what tells a step's requests and frees from those of others: 32 bytes. O(n), without the GIL."""
    import hashlib

    known = hashlib.blake2b(str(profile.period).encode(), digest_size=32)
    for column in (profile.size, profile.start, profile.end, profile.stream):
        known.update(column.tobytes())
    return known.digest()
