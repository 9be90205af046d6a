"""Lanes and step slots: each request is apart from all others, and in the lane or upstream as it was recorded."""

from __future__ import annotations

import random
import zlib
from itertools import pairwise

import pytest

from stowplan.allocator._core import Replay, Scope

pytestmark = pytest.mark.no_cover

ARENA_BITS = 40
ARENA_BYTES = 64
UPSTREAM = 1 << 60


class Program:
    """Threads that run steps and ask on streams, in any order; the arena that serves a request tells the lane."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.core = Replay(1, list(Scope)[seed % len(Scope)])
        self.running: dict[int, int] = {}  # thread -> its step slot
        self.live: list[int] = []
        self.reserved: set[int] = set()
        self.next_upstream = UPSTREAM
        self.said: list[object] = []

    def begin(self, thread: int) -> None:
        slot = self.core.enter(thread)
        lanes = [] if slot is None else (self.core.welcome(slot), self.core.lanes_of(slot))[1]
        self.said.append((slot, lanes))
        if slot is None:
            return
        self.running[thread] = slot
        for lane in lanes:
            if lane not in self.reserved:
                self.reserved.add(lane)
                self.core.reserve((lane + 1) << ARENA_BITS, ARENA_BYTES, lane)
            self.core.begin_lane(lane)

    def end(self, thread: int) -> None:
        slot = self.running.pop(thread, None)
        if slot is not None:
            for lane in self.core.lanes_of(slot):
                self.core.end_lane(lane)
            self.core.leave(slot)

    def request(self, stream: int, thread: int, size: int) -> None:
        address, block = self.core.request(size, stream, thread)
        self.said.append(address >> ARENA_BITS)
        if address == 0:
            self.core.adopt(block, self.next_upstream)
            self.next_upstream += size + 1
        self.live.append(block)

    def free(self) -> None:
        block = self.live.pop(self.draw.randrange(len(self.live)))
        if self.draw.random() < 0.5:
            self.core.hold(block)
            self.core.assert_invariants()
            self.core.let_go(block)
        else:
            self.core.release(block)

    def act(self) -> None:
        thread, kind = self.draw.randint(1, 4), self.draw.randrange(8)
        if kind == 0:
            self.begin(thread)
        elif kind == 1:
            self.end(thread)
        elif kind == 2:  # steps on one stream, so that the others stay away
            for _ in range(self.draw.randint(1, 10)):
                self.end(thread)
                self.begin(thread)
                self.request(0, thread, 1)
        elif kind == 3:
            self.core.set_interrupted(self.draw.random() < 0.5, thread)
        elif kind == 4 and self.live:
            self.free()
        else:
            self.request(self.draw.randint(0, 10), thread, self.draw.randint(0, 20))

    def run(self) -> list[object]:
        for _ in range(60):
            self.act()
            self.core.assert_invariants()
            ranges = self.core.ranges()
            assert set(ranges) == set(self.live)
            for (_, end), (begin, _) in pairwise(sorted(ranges.values())):
                assert end <= begin
        return [*self.said, {reason: n for reason, n in self.core.counters()["requests"].items() if n}]


def test_random_programs_are_served_as_recorded() -> None:
    said = [Program(seed).run() for seed in range(300)]
    assert zlib.crc32(repr(said).encode()) == 1390135872
