"""At no request has the device more in use with CupyPool than with CuPy's own pool: random programs of steps.

Each program is a list of what it does, made from its seed and run twice. Its steps vary in size, grow, alternate, or
end with a short batch; they ask on several streams, and keep results that die in odd order. `SLACK` is allowed, a page
for each lane, as arenas have memory in whole pages, and three more, which small blocks share; and by how much blocks of
more than half a page, which are rounded up to whole ones, are larger so. With HIP's pages of 4 KiB that is little.
"""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stowplan import CupyPool

from .driver import granule, in_use, page

pytestmark = pytest.mark.gpu

SLACK = 1.20 * (1 + 1 / 64)
"""The heap's bound, of what may be live: with the idle parts of arenas a 64th more than was live at a time."""
SCALES = [64 << 10, 256 << 10, 1 << 20]
STREAMS = 3
SOME, MANY = 20, 200


@dataclass(frozen=True)
class Block:
    """What a step asks for, and when it goes: after so many more requests, or so many steps later."""

    size: int
    stream: int
    requests: int
    steps: int


class Program:
    """Steps from a seed: `run` has them done, with a pool's `step` or without."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        draw = random.Random(seed)
        self.kind = draw.choice(("same", "vary", "grow", "alternate", "short"))
        self.ways = draw.choice(("marked", "marked", "keyed"))
        self.streams = draw.choice((1, 1, 2, STREAMS))
        self.steps = draw.randrange(12, 26)
        self.scale = draw.choice(SCALES)
        self.keeps = draw.choice((0.0, 0.1, 0.3))  # the share of blocks that are results
        self.bodies = [[self._block(draw) for _ in range(draw.randrange(3, 14))] for _ in range(2)]
        self.outside = draw.choice((0, 0, 1, 2))  # blocks between two steps
        self.rounding = 0  # bytes by which whole pages are larger than the blocks alive at a time

    def __repr__(self) -> str:
        return f"program {self.seed}: {self.kind}, {self.ways}, {self.streams} streams, keeps {self.keeps}"

    def _block(self, draw: random.Random) -> Block:
        size = int(self.scale * draw.choice((0.1, 1, 1, 1, 1.5, 2, 4, draw.random())))
        kept = draw.random() < self.keeps
        steps = draw.choice((1, 1, 2, 3, 5, 99)) if kept else 0
        return Block(max(size, 1), draw.randrange(self.streams), draw.randrange(1, 8), steps)

    def _factor(self, draw: random.Random, number: int) -> float:
        if self.kind == "vary":
            return draw.choice((0.7, 1, 1, 1.3))
        if self.kind == "grow":
            return 1 + number / 10
        return 0.5 if self.kind == "short" and number % 5 == 4 else 1

    def run(self, cupy: Any, step: Callable[[int], Any], after_step: Callable[[], object]) -> list[int]:
        """Run all steps, and return the bytes of the device in use after each request, beyond those before it."""
        draw = random.Random(self.seed)
        streams = [cupy.cuda.Stream.null, *(cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS - 1))]
        before = in_use(cupy)
        alive: list[tuple[int, int, Any]] = []  # (the step, the request) after which it goes, and itself
        seen: list[int] = []
        unit = max(page(), granule())

        def ask(block: Block, size: int, number: int, request: int) -> None:
            with streams[block.stream]:
                array = cupy.empty(size, "b")
            seen.append(in_use(cupy) - before)
            results = sum(at > number for at, _, _ in alive)
            late = draw.randrange(2) if block.steps and results > 3 else 0  # they die in odd order
            alive.append(
                (number + block.steps + late, request + block.requests if not block.steps else 0, array)
            )
            sizes = [array.nbytes for _, _, array in alive if array.nbytes > unit // 2]
            self.rounding = max(self.rounding, sum(-size % unit for size in sizes))

        for number in range(self.steps):
            key = number % 2 if self.kind == "alternate" else 0
            with step(key if self.ways == "keyed" else 0):
                for request, block in enumerate(self.bodies[key]):
                    alive[:] = [one for one in alive if (one[0], one[1]) > (number, request)]
                    ask(block, max(1, int(block.size * self._factor(draw, number))), number, request)
            for request in range(self.outside):
                ask(Block(self.scale, 0, 0, 0), self.scale * 2, number, 99 + request)
            alive[:] = [one for one in alive if one[0] > number]
            after_step()
        return seen


def check(cupy: Any, seed: int, make: Callable[..., Any] = CupyPool) -> int:
    """Run a program with CuPy's pool and with ours; return how many requests were replayed."""
    program = Program(seed)
    own = cupy.cuda.MemoryPool()
    cupy.cuda.set_allocator(own.malloc)
    with_cupy = program.run(cupy, lambda _: contextlib.nullcontext(), lambda: None)
    cupy.cuda.set_allocator(None)
    own.free_all_blocks()
    pool = make()
    cupy.cuda.set_allocator(pool.malloc)
    with_pool = program.run(cupy, pool.step, pool.wait)
    cupy.cuda.set_allocator(None)
    replayed = pool.stats.replayed
    del pool
    gc.collect()
    allowed = program.streams * page() + 3 * max(page(), granule()) + program.rounding
    excess = [
        (number, most, taken)
        for number, (most, taken) in enumerate(zip(with_cupy, with_pool, strict=True))
        if taken > SLACK * most + allowed
    ]
    assert not excess, f"{program!r}: at (request, with CuPy's pool, with CupyPool) {excess[:5]}"
    return replayed


def test_random_programs(cupy: Any, either: Any) -> None:
    assert sum(check(cupy, seed, either) for seed in range(SOME)) > 0


@pytest.mark.slow
def test_many_random_programs(cupy: Any) -> None:
    assert sum(check(cupy, seed) for seed in range(SOME, MANY)) > 0
