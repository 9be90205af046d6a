"""The step locator in plain Python: the executable specification of allocator/core/step_locator.hpp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

YOUNG = 64
YOUNGEST = 8
SIGNS = 4
LANDMARK = 256
GUESSES = 8
HOPELESS = 48
SKIPS = 8
AFTER = 8
CANDIDATES = 64
FOUND = 3

Asked = tuple[int, int]
"""A request: its size, and the ages of the young blocks freed before it, one bit each."""


class Planned(Protocol):
    """A request of a merged plan."""

    requested: int
    least: int | None
    landmark: bool
    due: int | None
    sign: int


class Guess(NamedTuple):
    next: int
    at: int | None
    points: int


def youngest(signs: Sequence[int]) -> list[int]:
    return [sign & ((1 << YOUNGEST) - 1) for sign in signs]


@dataclass
class StepLocatorReference:
    plan: Sequence[Planned]
    guesses: list[Guess] = field(default_factory=lambda: [Guess(0, None, 0)])  # the best first
    asked: list[Asked] = field(default_factory=list)
    before: list[int] = field(default_factory=list)  # points of the best guess before each request
    sign: int = 0
    landmark: int | None = None

    def freed(self, located: int | None, age: int) -> None:
        if 1 <= age <= YOUNG:
            self.sign |= 1 << (age - 1)
        if located is None:
            return
        planned = self.plan[located]
        in_step = planned.due is not None and located + LANDMARK < planned.due < len(self.plan)
        if planned.landmark and in_step:
            self.landmark = planned.due

    def locate(self, size: int) -> int | None:
        asked = (size, self.sign)
        self.asked.append(asked)
        self.before.append(self.guesses[0].points)
        former, self.guesses = self.guesses, []
        for guess in former:
            self.follow(guess, asked)
        start = former[0].next
        if self.landmark is not None and self.at_landmark(start) < 0:
            for k in range(self.landmark, self.landmark + AFTER):
                points = self.match(k, asked)
                if points >= 2:
                    self.consider(Guess(k + 1, k, self.before[-1] + points + 16 + way(start, k)))
        if len(self.asked) >= SIGNS and self.match(start, asked) < 4:
            self.jump(start)
        self.sign, self.landmark = 0, None
        self.guesses = [g for g in self.guesses if g.points >= self.guesses[0].points - HOPELESS]
        return self.guesses[0].at

    def match(self, k: int, asked: Asked) -> int:
        if k >= len(self.plan):
            return -60
        size, sign = asked
        planned = self.plan[k]
        assert planned.least is not None
        points = 2 if youngest([sign]) == youngest([planned.sign]) else -3
        points += sign == planned.sign
        if planned.least > 3 * size or size > 3 * planned.requested:
            return points - 6
        if planned.least < planned.requested:
            return points + 1
        return points + (2 if size == planned.requested else -2)

    def at_landmark(self, k: int) -> int:
        if self.landmark is None:
            return 0
        return 16 if self.landmark <= k < self.landmark + AFTER else -4

    def follow(self, guess: Guess, asked: Asked) -> None:
        k = guess.next
        points = self.match(k, asked)
        self.consider(Guess(k + 1, k, guess.points + points + self.at_landmark(k)))
        if points < 4:
            self.consider(Guess(k, None, guess.points - 4))
        if points < 2:
            for ahead in range(k + 1, k + SKIPS + 1):
                there = self.match(ahead, asked)
                if there >= -3:
                    points = guess.points + there - 3 + self.at_landmark(ahead)
                    self.consider(Guess(ahead + 1, ahead, points))

    def jump(self, start: int) -> None:
        last = youngest([sign for _, sign in self.asked[-SIGNS:]])
        planned = youngest([p.sign for p in self.plan])
        places = [k for k in range(SIGNS - 1, len(planned)) if planned[k - SIGNS + 1 : k + 1] == last]
        ahead = [k for k in places if k >= start][:CANDIDATES]
        behind = [k for k in reversed(places) if k < start][:CANDIDATES]
        for direction in (ahead, behind):
            found = 0
            for k in direction:
                there = [self.match(k - SIGNS + 1 + i, a) for i, a in enumerate(self.asked[-SIGNS:])]
                if found < FOUND and min(there) > -6:
                    found += 1
                    self.consider(Guess(k + 1, k, self.before[-SIGNS] + way(start, k) + sum(there)))

    def consider(self, guess: Guess) -> None:
        if any(g.next == guess.next and g.points >= guess.points for g in self.guesses):
            return
        others = [g for g in self.guesses if g.next != guess.next]
        better = [g for g in others if g.points >= guess.points]
        worse = [g for g in others if g.points < guess.points]
        self.guesses = [*better, guess, *worse][:GUESSES]


def way(start: int, end: int) -> int:
    """Return the points that it costs to go from one place in the plan to another."""
    return (0 if end > start else -12) - 3 * abs(end - start).bit_length()
