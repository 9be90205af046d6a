"""The streams: recorded ones, which lie in tests/data/golden, and those that a seed makes anew each time.

They were recorded once, by a memory handler of ctypes: another NumPy or Chainer asks for something else. What recorded
them is in the repository's history (tests/golden/recording.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from .stream import KEYS, Op, Stream, Writer, load

DATA = Path(__file__).parents[1] / "data" / "golden"


NUMPY = "rotation solver solver-two-counts solver-any-count perceptron frames frames-any-order"
RECORDED = (*NUMPY.split(), "seq2seq", "googlenet", "resnet50")
"""Streams in files: loops of NumPy, and with Chainer steps of three networks."""


# ------------------------------------------------------------------------------------------------------------- by seed

SIZES = (1, 7, 64, 65, 200, 1000, 1024, 5000, 40_000)


class _Soak:
    """Steps of three scripts, each request of which may be late, larger, smaller or missing, and whatever else."""

    def __init__(self, seed: int, *, streams: tuple[int, ...]) -> None:
        self._chance = random.Random(seed)
        self._streams = streams
        self._to = Writer()
        self._due: dict[int, int] = {}  # block -> number of requests at which the program frees it
        self._held: list[int] = []
        self._now = 0
        self._scripts = {key: self._script() for key in KEYS}

    def _script(self) -> list[tuple[int, int, int]]:
        """Return sizes, lives in requests, and streams."""
        pick = self._chance.randrange
        return [
            (SIZES[pick(len(SIZES))], 1 + pick(12), self._streams[pick(len(self._streams))])
            for _ in range(1 + pick(40))
        ]

    def stream(self, operations: int) -> Stream:
        to = self._to
        while to.requests < operations // 2:
            self._step()
            if self._chance.random() < 0.02:
                self._scripts[KEYS[self._chance.randrange(len(KEYS))]] = self._script()
            if self._chance.random() < 0.1:
                self._interrupted_part()
        for block in list(self._due):
            self._drop(block)
        for block in self._held:
            to.free(block, Op.LET_GO)
        return to.stream()

    def _step(self) -> None:
        chance, to = self._chance, self._to
        key = KEYS[chance.randrange(len(KEYS))]
        usual = chance.random() < 0.7
        to.begin(key)
        for size, life, stream in self._scripts[key]:
            draw = 1.0 if usual else chance.random()
            if draw < 0.05:
                continue  # missing
            late = chance.randrange(50) if draw < 0.15 else 0
            more = (-60, 500)[chance.randrange(2)] if draw < 0.25 else 0
            self._request(max(size + more, 1), life + late, stream)
            if draw < 0.3:
                self._request(SIZES[chance.randrange(len(SIZES))], life, stream)
        to.end(failed=not usual and chance.random() < 0.1)

    def _request(self, size: int, life: int, stream: int) -> None:
        to = self._to
        for block in [block for block, at in self._due.items() if at <= to.requests]:
            self._drop(block)
        if stream != self._now:
            self._now = stream
            to.add(Op.STREAM, stream)
        self._due[to.request(size)] = to.requests + life

    def _drop(self, block: int) -> None:
        del self._due[block]
        if len(self._streams) == 1 or self._chance.random() < 0.8:
            self._to.free(block)
            return
        self._to.free(block, Op.HOLD)
        self._held.append(block)
        while len(self._held) > 5:
            self._to.free(self._held.pop(self._chance.randrange(len(self._held))), Op.LET_GO)

    def _interrupted_part(self) -> None:
        self._to.add(Op.INTERRUPT)
        for _ in range(self._chance.randrange(4)):
            self._request(
                SIZES[self._chance.randrange(len(SIZES))], 1 + self._chance.randrange(30), self._now
            )
        self._to.add(Op.RESUME)


def _tasks(seed: int, rounds: int) -> Stream:
    """Return tasks of a scheduler like Dask's: four workers at once; results go to tasks of later rounds."""
    chance, to = random.Random(seed), Writer()
    kinds = {"a": (4000, 900, 64_000), "b": (64_000, 64_000, 8000), 3: (12_000, 500, 12_000, 300, 2000)}
    results: list[int] = []
    for _ in range(rounds):
        running = []
        for thread in (1, 2, 3, 4):
            to.add(Op.THREAD, thread)
            key = tuple(kinds)[chance.randrange(len(kinds))]
            to.begin(key, keeps_results=True)
            running.append((thread, iter(kinds[key]), list[int]()))
        while running:
            at = chance.randrange(len(running))
            thread, sizes, blocks = running[at]
            to.add(Op.THREAD, thread)
            size = next(sizes, None)
            if size is not None:
                blocks.append(to.request(size))
                continue
            del running[at]
            *temporary, result = blocks
            for block in temporary:
                to.free(block)
            to.end()
            results.append(result)
        while len(results) > 10:
            to.free(results.pop(chance.randrange(len(results))))
    return to.stream()


SEEDED: dict[str, Callable[[], Stream]] = {
    "soak-1": lambda: _Soak(1, streams=(0,)).stream(16_000),
    "soak-2": lambda: _Soak(2, streams=(0,)).stream(16_000),
    "soak-streams": lambda: _Soak(3, streams=(0, 0, 0, 7, 9)).stream(16_000),
    "soak-streams-anew": lambda: _Soak(4, streams=(0, 0, 0, 7, 9)).stream(16_000),
    "tasks": lambda: _tasks(5, 200),
}

NAMES = (*RECORDED, *SEEDED)


def find(name: str) -> Stream:
    """Return a stream by its name."""
    return SEEDED[name]() if name in SEEDED else load(DATA / f"{name}.npz")


def grows_in_place(name: str) -> bool:
    """Whether arenas do, as on the host; else another one takes their place, as on a device."""
    return "streams" not in name


def blocks_of(stream: Stream) -> Iterator[tuple[Op, int]]:
    """Yield the operations; frees name their blocks by number of request."""
    requests = 0
    for code, arg in zip(stream.ops.tolist(), stream.args.tolist(), strict=True):
        op = Op(code)
        if op in (Op.FREE, Op.HOLD, Op.LET_GO):
            yield op, requests - arg
            continue
        requests += op is Op.REQUEST
        yield op, arg
