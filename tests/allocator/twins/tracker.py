"""The tracker in plain Python: the executable specification of allocator/core/tracker.hpp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

YOUNG = 8
LANDMARK = 256
AFTER = 8
WINDOW = 64
DOUBT = 20
CANDIDATES = 256
PAUSE = 4
SIGNS = 16

Sign = tuple[int, bool]
"""How many young blocks were freed before the request, 3 for more, and whether it asks for as much as the last one."""


class Planned(Protocol):
    """A request of a merged plan."""

    requested: int
    least: int | None
    landmark: bool
    due: int | None


def signs_of(plan: Sequence[Planned]) -> list[Sign]:
    """Return the signs that a step would show which asks for all that the plan has."""
    signs = []
    for k, planned in enumerate(plan):
        frees = sum(p.due == k and i < k <= i + YOUNG for i, p in enumerate(plan))
        before = plan[k - 1]
        same = k > 0 and (before.requested, before.least) == (planned.requested, planned.least)
        signs.append((min(frees, 3), same))
    return signs


@dataclass
class TrackerTwin:
    plan: Sequence[Planned]
    signs: list[Sign] = field(default_factory=list)
    seen: list[tuple[int, Sign]] = field(default_factory=list)  # the step's requests: size and sign
    next: int = 0
    frees: int = 0
    landmark: int | None = None
    doubt: int = 0
    sure: int = 0
    looked: int = 0
    lost: bool = False

    def __post_init__(self) -> None:
        self.signs = signs_of(self.plan)

    def freed(self, located: int | None, age: int) -> None:
        self.frees += age <= YOUNG
        if located is None:
            return
        planned = self.plan[located]
        in_step = planned.due is not None and located + LANDMARK < planned.due < len(self.plan)
        if planned.landmark and in_step:
            self.landmark = planned.due

    def in_range(self, k: int, size: int) -> bool:
        if not 0 <= k < len(self.plan):
            return False
        least = self.plan[k].least
        assert least is not None
        return least <= size <= self.plan[k].requested

    def alike(self, k: int, size: int) -> bool:
        if not 0 <= k < len(self.plan):
            return False
        least = self.plan[k].least
        assert least is not None
        return least <= 2 * size and size <= 2 * self.plan[k].requested

    def locate(self, size: int) -> int | None:
        same = bool(self.seen) and self.seen[-1][0] == size
        self.seen.append((size, (min(self.frees, 3), same)))
        self.frees = 0
        at = self.at_landmark()
        self.landmark = None
        if at == self.next:
            self.doubt = 0
        if at is None:
            if self.alike(self.next, size):
                at = self.next
                if self.signs[at] != self.seen[-1][1]:
                    self.doubt += 2
                    self.sure = 0
                elif self.in_range(at, size):
                    self.doubt = max(0, self.doubt - 1)
                    self.sure += 1
            else:
                self.doubt += 4
                self.sure = 0
                at = self.after_a_lost_one() if self.lost else self.constant_ahead()
        number = len(self.seen) - 1
        if self.doubt >= DOUBT and self.sure < 2 and number >= SIGNS and number - self.looked >= PAUSE:
            self.looked = number
            found = self.anywhere()
            if found is not None:
                self.doubt = 0
                at = found
        self.lost = at is None
        if at is not None:
            self.next = at + 1
        return at

    def at_landmark(self) -> int | None:
        size, (_, same) = self.seen[-1]
        if self.landmark is None:
            return None
        if self.landmark == self.next:
            return self.next if self.alike(self.next, size) else None
        for k in range(self.landmark, self.landmark + AFTER):
            if self.in_range(k, size) and self.signs[k][1] == same:
                return k
        return None

    def constant_ahead(self) -> int | None:
        size, (_, same) = self.seen[-1]
        for k in range(self.next + 1, min(self.next + AFTER + 1, len(self.plan))):
            if self.plan[k].least == self.plan[k].requested == size and self.signs[k][1] == same:
                return k
        return None

    def after_a_lost_one(self) -> int | None:
        (before, (_, same)), (size, sign) = self.seen[-2:]
        for k in range(self.next, self.next + WINDOW):
            in_range = self.in_range(k, before) and self.in_range(k + 1, size)
            if in_range and self.signs[k + 1] == sign and self.signs[k][1] == same:
                return k + 1
        return None

    def anywhere(self) -> int | None:
        last = self.seen[-SIGNS:]
        signs = [sign for _, sign in last]
        places = [k for k in range(SIGNS - 1, len(self.plan)) if self.signs[k - SIGNS + 1 : k + 1] == signs]
        places.sort(key=lambda k: (abs(k - self.next), k < self.next))
        for k in places[:CANDIDATES]:
            if all(self.in_range(k - SIGNS + 1 + i, size) for i, (size, _) in enumerate(last)):
                return k
        return None
