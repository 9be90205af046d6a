"""The plans that a lane has in use: by step key, several variants each, the least recently used thrown out.

A key tells which step the program is about to run (``"train"``, ``"eval"``); None, where none is given. Steps of one
key may still differ (a short last batch, length buckets): they are *variants*, told apart while they run by their
requests. All plans of a lane share one arena.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._core import CorePlan, PlanSet

if TYPE_CHECKING:
    from ..planning import Plan

_tags = itertools.count(1)


@dataclass(eq=False)
class Installed:
    """A plan in use, with the core's name for it (not 0), the step's key or None, and its form in the core.

    Attributes
    ----------
    revisions
        How often it was succeeded in a row without having been replayed in full.
    successor
        Tag of the plan that was followed after it, the last time.
    """

    plan: Plan
    tag: int
    key: Hashable
    core: CorePlan
    revisions: int = 0
    successor: int = 0


class PlanCache:
    """At most `capacity` plans.

    Parameters
    ----------
    capacity
        Plans, 1 or more.
    plans
        Those to begin with, the least recently used first.
    """

    def __init__(self, capacity: int, plans: Iterable[Installed] = ()) -> None:
        self._capacity = capacity
        self._plans: OrderedDict[int, Installed] = OrderedDict()  # by tag, the least recently used first
        self._sets: dict[Hashable, PlanSet] = {}
        self._last_followed = 0
        self.arena_bytes = 0
        """Bytes of an arena in which every plan can be replayed."""
        for entry in plans:
            self.add(entry)

    @property
    def lower_bound(self) -> int:
        """The largest of the plans' lower bounds, in bytes: no arena in which every plan can be replayed is smaller."""
        return max((entry.plan.placement.lower_bound for entry in self.held), default=0)

    @property
    def held(self) -> list[Installed]:
        """All plans, the least recently used first. On any thread."""
        return list(self._plans.values())

    def plans(self) -> list[Installed]:
        """Return all plans, the most recently used first."""
        return self.held[::-1]

    def get(self, tag: int) -> Installed | None:
        """Return the plan of this tag."""
        return self._plans.get(tag)

    def variants(self, key: Hashable) -> list[Installed]:
        """Return the plans of a key, the most recently used first."""
        return [entry for entry in self.plans() if entry.key == key]

    def likely(self, key: Hashable) -> tuple[CorePlan | None, PlanSet]:
        """Return the plan that a step of this key is expected to follow, and all that it may follow.

        Expected is what came after the last step's plan the last time; else the variant used most recently.
        """
        last = self._plans.get(self._last_followed)
        expected = None if last is None else self._plans.get(last.successor)
        if expected is None or expected.key != key or key not in self._sets:
            variants = self.variants(key)
            variants.sort(key=lambda entry: last is None or entry.tag != last.successor)
            expected = variants[0] if variants else None
            if key not in self._sets:
                self._sets[key] = PlanSet([entry.core for entry in variants])
        return (None if expected is None else expected.core), self._sets[key]

    def install(self, key: Hashable, plan: Plan) -> Installed:
        """Give a plan a tag and the form in which the core reads it, to be added; on any thread. O(n log n)."""
        tag = next(_tags)
        profile, rows = plan.profile, plan.rows
        capacity = profile.size.copy()
        capacity[rows] = plan.problem.size
        # A block is due at the number of requests that come before its free.
        freed_at = profile.end[rows] % max(profile.period, 1)
        due_at = np.searchsorted(profile.start, freed_at)
        due = rows[np.argsort(due_at, kind="stable")]
        due_begin = np.searchsorted(np.sort(due_at), np.arange(len(profile) + 2)).astype(np.int64)
        columns = plan.offset, profile.size, capacity, profile.stream, due_begin, due
        return Installed(plan, tag, key, CorePlan(*columns, plan.arena_bytes, tag, plan.steps))

    def add(self, entry: Installed, *, replaces: Installed | None = None) -> None:
        """Take a plan in, and throw out what it replaces, or the least recently used if there are too many."""
        if replaces is not None:
            self._remove(replaces)
            if entry.plan.profile is replaces.plan.profile:
                self._succeed(entry, replaces)
        while len(self._plans) >= self._capacity:
            self._remove(self.held[0])
        self._plans[entry.tag] = entry
        self._plans.move_to_end(entry.tag)
        self._plans_changed(entry.key)

    def _succeed(self, entry: Installed, old: Installed) -> None:
        """Expect a plan wherever the plan that it replaces was expected. O(plans)."""
        entry.successor = old.successor
        for other in (entry, *self._plans.values()):
            if other.successor == old.tag:
                other.successor = entry.tag
        if self._last_followed == old.tag:
            self._last_followed = entry.tag

    def follow(self, entry: Installed, *, in_full: bool) -> None:
        """Note that a step has followed this plan: it is the most recently used, and the last one's successor."""
        self._plans.move_to_end(entry.tag)
        last = self._plans.get(self._last_followed)
        if last is not None:
            last.successor = entry.tag
        self._last_followed = entry.tag
        if in_full:
            entry.revisions = 0

    def _remove(self, entry: Installed) -> None:
        if self._plans.pop(entry.tag, None) is not None:
            self._plans_changed(entry.key)

    def _plans_changed(self, key: Hashable) -> None:
        self._sets.pop(key, None)
        self.arena_bytes = max((entry.plan.arena_bytes for entry in self._plans.values()), default=0)
