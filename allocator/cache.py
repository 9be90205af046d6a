"""The plans of a pool: by step key, several variants each, the least recently used thrown out.

A key says which step the program is about to run (``"train"``, ``"eval"``); None, where it does not say. Steps of one
key may still differ (a short last batch, length buckets): they are *variants*, told apart while they run by their
requests. All plans of a pool share one arena.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._core import CorePlan, PlanSet
from .core_plan import core_plan
from .lane_policy import Standing

if TYPE_CHECKING:
    from ..planning import Plan


@dataclass
class Entry:
    """A plan in the cache.

    Attributes
    ----------
    key
        The step's key, or None.
    tag
        The core's name for the plan; not 0.
    plan, core
        The plan, and its form in the core.
    standing
        What the lane's policy asks about it.
    used
        When it was last followed; larger is later.
    successor
        Tag of the plan that was followed after it, the last time.
    """

    key: Hashable
    tag: int
    plan: Plan
    core: CorePlan
    standing: Standing
    used: int = 0
    successor: int = 0

    def revise(self, old: Entry) -> None:
        """Note that it takes the place of another plan, or of itself."""
        self.standing = self.standing._replace(revisions=old.standing.revisions + 1)


class PlanCache:
    """At most `capacity` plans.

    Parameters
    ----------
    capacity
        Plans, 1 or more.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: dict[int, Entry] = {}
        self._sets: dict[Hashable, PlanSet] = {}
        self._clock = 0
        self._tags = itertools.count(1)
        self._last_followed = 0
        self.arena_bytes = 0
        """Bytes of an arena in which every plan can be replayed."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def lower_bound(self) -> int:
        """The largest of the plans' lower bounds, in bytes: no arena in which every plan can be replayed is smaller."""
        return max((entry.plan.placement.lower_bound for entry in list(self._entries.values())), default=0)

    def entries(self) -> list[Entry]:
        """Return all entries, the most recently used first."""
        return sorted(self._entries.values(), key=lambda entry: -entry.used)

    def get(self, tag: int) -> Entry | None:
        """Return the entry of this tag."""
        return self._entries.get(tag)

    def variants(self, key: Hashable) -> list[Entry]:
        """Return the entries of a key, the most recently used first."""
        return [entry for entry in self.entries() if entry.key == key]

    def likely(self, key: Hashable) -> tuple[CorePlan | None, PlanSet]:
        """Return the plan that a step of this key is expected to follow, and all that it may follow.

        Expected is what came after the last step's plan the last time; else the variant used most recently.
        """
        last = self._entries.get(self._last_followed)
        expected = None if last is None else self._entries.get(last.successor)
        if expected is None or expected.key != key or key not in self._sets:
            variants = self.variants(key)
            variants.sort(key=lambda entry: last is None or entry.tag != last.successor)
            expected = variants[0] if variants else None
            if key not in self._sets:
                self._sets[key] = PlanSet([entry.core for entry in variants])
        return (None if expected is None else expected.core), self._sets[key]

    def entry(self, key: Hashable, plan: Plan) -> Entry:
        """Make an entry, to be added; on any thread."""
        tag = next(self._tags)
        return Entry(key, tag, plan, core_plan(plan, tag), Standing(plan.steps))

    def add(self, entry: Entry, *, replaces: Entry | None = None) -> None:
        """Take a plan in, and throw out what it replaces, or the least recently used if there are too many."""
        if replaces is not None:
            self._remove(replaces)
            if entry.plan.profile is replaces.plan.profile:
                self._succeed(entry, replaces)
        while len(self._entries) >= self._capacity:
            self._remove(self.entries()[-1])
        self._entries[entry.tag] = entry
        self._plans_changed(entry.key)
        self._clock += 1
        entry.used = self._clock

    def _succeed(self, entry: Entry, old: Entry) -> None:
        """Have the plan of a step, placed anew, expected where the one was whose place it takes. O(plans)."""
        entry.successor = old.successor
        for other in (entry, *self._entries.values()):
            if other.successor == old.tag:
                other.successor = entry.tag
        if self._last_followed == old.tag:
            self._last_followed = entry.tag

    def follow(self, entry: Entry, *, in_full: bool) -> None:
        """Note that a step has followed this plan: it is the most recently used, and the last one's successor."""
        self._clock += 1
        entry.used = self._clock
        last = self._entries.get(self._last_followed)
        if last is not None:
            last.successor = entry.tag
        self._last_followed = entry.tag
        if in_full and entry.standing.revisions:
            entry.standing = entry.standing._replace(revisions=0)

    def _remove(self, entry: Entry) -> None:
        if self._entries.pop(entry.tag, None) is not None:
            self._plans_changed(entry.key)

    def _plans_changed(self, key: Hashable) -> None:
        self._sets.pop(key, None)
        self.arena_bytes = max((entry.plan.arena_bytes for entry in self._entries.values()), default=0)
