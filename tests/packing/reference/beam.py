"""The beam over skylines, as one reads it: see packing/core/search/beam.hpp."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from .refill import Block, Rectangle, align_up, columns

Line = tuple[int, int, int]  # first column, column after the last, height


@dataclass
class State:
    lines: list[Line]
    prospect: list[int]
    waiting: set[int]
    pressure: float = 0.0
    peak: int = 0
    born: int = -1
    offsets: dict[int, int] = field(default_factory=dict)


class Beam:
    def __init__(
        self,
        blocks: list[Block],
        obstacles: list[Rectangle],
        *,
        width: int,
        branch: int,
        foot: float,
        power: int,
    ) -> None:
        self.width, self.branch, self.power = width, branch, power
        self.count, spans = columns([b[:2] for b in blocks] + [o[:2] for o in obstacles])
        self.blocks = [(*spans[k], b[2], b[3]) for k, b in enumerate(blocks)]
        self.obstacles = [(*spans[len(blocks) + k], o[2], o[3]) for k, o in enumerate(obstacles)]
        self.load = [0] * self.count
        for start, end, size, _ in self.blocks:
            for c in range(start, end):
                self.load[c] += size
        for start, end, lower, upper in self.obstacles:
            for c in range(start, end):
                self.load[c] += upper - lower
        self.bound = max(self.load, default=0)
        self.foot = foot * self.bound

    def run(self, limit: float) -> list[int] | None:
        """Offsets of the blocks, or None. Blocks earlier in the list are tried first."""
        if not self.blocks:
            return []
        self.limit = limit
        self.births = 0
        root = State([(0, self.count, 0)], list(self.load), set(range(len(self.blocks))), peak=self.bound)
        for load in self.load:
            root.pressure += self.press(load)
        if self.bound > limit:
            return None
        level = [root]
        for _ in self.blocks:
            self.kept: list[tuple[float, int]] = []  # pressure, place in self.next
            self.next: list[State] = []
            self.seen: dict[object, float] = {}
            for state in level:
                self.expand(state)
            if not self.kept:
                return None
            level = [self.next[place] for _, place in sorted(self.kept)]
        best = min(level, key=lambda s: (s.peak, s.born))
        return [best.offsets[b] for b in range(len(self.blocks))]

    def press(self, prospect: int) -> float:
        x = (prospect - self.foot) / self.bound
        if x <= 0:
            return 0.0
        y = x
        for _ in range(1, self.power):
            y *= x
        return y

    def ceiling(self, column: int, height: int) -> float:
        return min(
            (o[2] for o in self.obstacles if o[0] <= column < o[1] and o[2] >= height), default=float("inf")
        )

    def inside(self, s: State, line: Line) -> list[int]:
        """The waiting blocks that fit on the line, by preference."""
        found = []
        for b in sorted(s.waiting):
            start, end, size, alignment = self.blocks[b]
            top = align_up(line[2], alignment) + size
            if line[0] > start or end > line[1]:
                continue
            if all(self.ceiling(c, line[2]) >= top for c in range(start, end)):
                found.append(b)
        return found

    def expand(self, state: State) -> None:
        s = copy.deepcopy(state)
        for _ in range(3):
            low = min(range(len(s.lines)), key=lambda k: s.lines[k][2])
            for b in self.inside(s, s.lines[low])[: self.branch]:
                child = copy.deepcopy(s)
                self.place(child, low, b)
                if child.peak <= self.limit and self.settle(child):
                    self.offer(child)
            if len(s.lines) == 1 and not self.obstacles:
                return
            if not self.lift(s, low) or not self.settle(s):
                return
            if len(self.kept) == self.width and s.pressure >= max(self.kept)[0]:
                return

    def offer(self, child: State) -> None:
        full = len(self.kept) == self.width
        if full and child.pressure >= max(self.kept)[0]:
            return
        key = (frozenset(child.waiting), tuple(child.lines))
        if key in self.seen and self.seen[key] <= child.pressure:
            return
        self.seen[key] = child.pressure
        if full:
            worst = max(self.kept)
            self.kept.remove(worst)
            self.next[worst[1]] = child
            self.kept.append((child.pressure, worst[1]))
        else:
            self.next.append(child)
            self.kept.append((child.pressure, len(self.next) - 1))

    def place(self, s: State, at: int, b: int) -> None:
        left, right, height = s.lines[at]
        start, end, size, alignment = self.blocks[b]
        offset = align_up(height, alignment)
        self.waste(s, start, end, offset - height)
        s.waiting.remove(b)
        s.offsets[b] = offset
        s.born = self.births
        self.births += 1
        parts = [(left, start, height), (start, end, offset + size), (end, right, height)]
        s.lines[at : at + 1] = [part for part in parts if part[0] < part[1]]
        self.merge(s)

    def waste(self, s: State, start: int, end: int, amount: int) -> None:
        if amount == 0:
            return
        for c in range(start, end):
            before, after = s.prospect[c], s.prospect[c] + amount
            s.prospect[c] = after
            if after > self.foot:
                s.pressure += self.press(after) - self.press(before)
            s.peak = max(s.peak, after)

    def merge(self, s: State) -> None:
        merged: list[Line] = []
        for start, end, height in s.lines:
            if merged and merged[-1][2] == height:
                merged[-1] = (merged[-1][0], end, height)
            else:
                merged.append((start, end, height))
        s.lines = merged

    def lift(self, s: State, at: int) -> bool:
        start, end, low = s.lines[at]
        bounds = [line[2] for line in (s.lines[at - 1 : at] if at else []) + s.lines[at + 1 : at + 2]]
        height = min([*bounds, *(self.ceiling(c, low) for c in range(start, end))])
        if height == float("inf"):
            return False
        self.waste(s, start, end, int(height) - low)
        parts = []
        for c in range(start, end):
            touched = [o[3] for o in self.obstacles if o[0] <= c < o[1] and o[2] == height]
            parts.append((c, c + 1, touched[0] if touched else int(height)))
        s.lines[at : at + 1] = parts
        self.merge(s)
        return s.peak <= self.limit

    def settle(self, s: State) -> bool:
        if not s.waiting:
            return s.peak <= self.limit
        k = 0
        while k < len(s.lines):
            height = s.lines[k][2]
            neighbours = (s.lines[k - 1 : k] if k else []) + s.lines[k + 1 : k + 2]
            if any(line[2] < height for line in neighbours) or self.inside(s, s.lines[k]):
                k += 1
                continue
            if not self.lift(s, k):
                return False
            k = max(0, k - 2)
        return True
