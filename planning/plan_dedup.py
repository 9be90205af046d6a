"""Plans that several lanes need: threads that run the same step have it packed once.

Every lane of a pool decides for itself, so eight threads that run one step request eight plans at about the same time.
A plan is known by what it was made of; the first thread that asks makes it, and the others wait for it. It is kept
while it is among the last `capacity` that were requested, and these take no more than `MOST_BYTES`.

A plan of a step that keeps its results has nothing to do with what else is in the arena, so it fits into that of any
lane: it is offered to the others, by its step's key, and a thread need not see for itself what another one has seen.
Without that, 480 tasks of 12 kinds on 8 threads of an executor replayed 0.73 to 0.78 of their requests, and not
0.95, and took 2.4 times the CPU time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..packing.problem import IntArray
    from ..profiler import Profile
    from .plan import Plan

MOST_BYTES = 16 << 20
MOST_OFFERS = 8
"""Plans of one key that are offered to other lanes."""


class _Made:
    """A plan that is made, or being made; or what was raised."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.plan: Plan | None = None
        self.error: BaseException | None = None


class SharedPlans:
    """The plans that were made last, by what they were made of: `capacity` of them, 1 or more."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Forget all, those that are being made as well: a fork has left behind the threads that make them."""
        self._mutex = threading.Lock()
        self._plans: OrderedDict[Hashable, _Made] = OrderedDict()
        self._offered: OrderedDict[Hashable, list[tuple[int, Plan]]] = OrderedDict()
        self._offers = 0

    def find(self, made_of: Hashable, make: Callable[[], Plan]) -> Plan:
        """Return the plan that was made of this, or make it; what `make` raises, all threads that wait for it raise."""
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
            with self._mutex:
                self._bound()
        made.is_done.wait()
        if made.plan is None:
            assert made.error is not None
            raise made.error
        return made.plan

    def offer(self, key: Hashable, plan: Plan) -> None:
        """Offer a plan to all lanes; the last `MOST_OFFERS` of a key are kept, and the last `capacity` keys."""
        with self._mutex:
            self._offers += 1
            mine = self._offered.setdefault(key, [])
            self._offered[key] = [*mine, (self._offers, plan)][-MOST_OFFERS:]
            self._offered.move_to_end(key)
            while len(self._offered) > self._capacity:
                self._offered.popitem(last=False)
            self._bound()

    def plans(self) -> set[Plan]:
        """Return all that are kept."""
        made = {one.plan for one in list(self._plans.values()) if one.plan is not None}
        return made.union(*([plan for _, plan in offers] for offers in list(self._offered.values())))

    def _bound(self) -> None:
        for kept in (self._plans, self._offered):
            while len(kept) > 1 and sum(plan.nbytes for plan in self.plans()) > MOST_BYTES:
                kept.popitem(last=False)

    def offers(self, key: Hashable) -> list[tuple[int, Plan]]:
        """Return what is offered for a key: (number, plan), the larger the later. Not to be changed. O(1)."""
        return self._offered.get(key, [])


def contents(profile: Profile, *others: IntArray) -> int:
    """Return what tells a step's requests and frees, and other columns, from those of others: a hash. O(n)."""
    columns = (profile.size, profile.start, profile.end, profile.stream, *others)
    return hash((profile.period, *(column.tobytes() for column in columns)))
