"""Random step graphs and random valid schedules of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from stowplan.scheduling import Phase, Relation, Schedule, StepGraph, Way, choices


def random_graph(seed: int, operators: int = 14, phases: bool | None = None) -> StepGraph:
    """A small step: forward, backward, updates; with all that a step graph can have, each now and then.

    Without phases all of it is one pass; None: now and then.
    """
    rng = random.Random(seed)
    return _Maker(rng, operators, seed % 3 > 0 if phases is None else phases).make()


class _Maker:
    def __init__(self, rng: random.Random, operators: int, phases: bool = True) -> None:
        self.rng, self.phases = rng, phases
        self.forward = max(1, operators // 2 - rng.randrange(2))
        self.backward = max(0, operators - self.forward - rng.randrange(3))
        self.updates = max(0, operators - self.forward - self.backward)
        self.wild = rng.random() < 0.3  # nothing but the rules holds: any phase, any repeatable operator
        self.size: list[int] = []
        self.storage: list[int] = []
        self.resident: list[bool] = []
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        self.after: list[list[int]] = []
        self.phase: list[Phase] = []
        self.readable: list[int] = []

    def value(self, resident: bool = False, storage: int | None = None) -> int:
        v = len(self.size)
        self.size.append(0 if storage is not None else self.rng.choice([0, 1, 2, 3, 5, 8, 13, 40]))
        self.storage.append(v if storage is None else storage)
        self.resident.append(resident)
        return v

    def operator(self, phase: Phase) -> None:
        rng = self.rng
        near = self.readable[-4:] if rng.random() < 0.5 else self.readable
        reads = [rng.choice(near) for _ in range(rng.randrange(4))] if near else []
        writes = []
        for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3])):
            what = rng.random()
            written = [v for row in self.writes for v in row]
            if written and what < 0.12:  # a view, or a result in place
                base = self.storage[rng.choice(written)]
                if not self.resident[base]:
                    writes.append(self.value(storage=base))
                    continue
            if written and what < (0.25 if phase != Phase.FORWARD else 0.05):  # one more of several writers
                writes.append(rng.choice(written))
                continue
            if what > 0.97 and any(self.resident):
                writes.append(rng.choice([v for v, r in enumerate(self.resident) if r]))
                continue
            writes.append(self.value())
        if rng.random() < 0.05:
            reads += reads[:1]  # a value named twice counts once
        n = len(self.reads)
        self.after.append(sorted({rng.randrange(n) for _ in range(2)}) if n and rng.random() < 0.1 else [])
        self.reads.append(reads)
        self.writes.append(writes)
        self.phase.append(rng.choice(list(Phase)) if self.wild and rng.random() < 0.2 else phase)
        self.readable += writes

    def make(self) -> StepGraph:
        rng = self.rng
        self.readable += [self.value(resident=True) for _ in range(rng.randrange(3))]
        for phase, count in zip(Phase, (self.forward, self.backward, self.updates), strict=True):
            for _ in range(count):
                self.operator(phase)
        n, m = len(self.reads), len(self.size)
        if not self.phases:
            self.phase = [Phase.FORWARD] * n
        kept = [not r and rng.random() < 0.07 for r in self.resident]
        columns: dict[str, Any] = {}
        if rng.random() < 0.8:
            columns["seconds"] = [rng.choice([0.0, 0.1, 0.25, 0.3, 1.0]) for _ in range(n)]
        if rng.random() < 0.7:
            columns["workspace"] = [rng.choice([0, 0, 0, 1, 7, 30]) for _ in range(n)]
        if rng.random() < 0.5:
            columns["held"] = [rng.randrange(n) if rng.random() < 0.15 else -1 for _ in range(m)]
        if self.wild or rng.random() < 0.5:
            chance = rng.choice([0.1, 0.5, 1.0]) if self.wild else 0.15
            columns["repeatable"] = [
                rng.random() < chance if self.wild else phase == Phase.FORWARD and rng.random() > chance
                for phase in self.phase
            ]
        if rng.random() < 0.7:
            columns["packed"] = [rng.randrange(size + 1) for size in self.size]
        return StepGraph(
            self.reads,
            self.writes,
            self.size,
            self.storage,
            after=self.after,
            phase=self.phase,
            resident=self.resident,
            kept=kept,
            **columns,
        )


def random_order(graph: StepGraph, rng: random.Random) -> np.ndarray:
    """Any order that the dependencies allow; near to the recorded one as often as not."""
    waiting = [set(row) for row in graph.dependencies().rows()]
    left, done, order = list(range(len(graph))), set[int](), list[int]()
    tame = rng.random() < 0.5
    while left:
        ready = [i for i in left if waiting[i] <= done]
        one = ready[0] if tame and rng.random() < 0.8 else rng.choice(ready)
        left.remove(one)
        done.add(one)
        order.append(one)
    return np.array(order, dtype=np.int64)


def random_way(graph: StepGraph, rng: random.Random) -> np.ndarray:
    """For each storage any way that it may have."""
    eager = rng.choice([0.2, 0.6, 1.0])
    way = np.zeros(graph.values, dtype=np.int64)
    for storage, ways in choices(graph).items():
        way[storage] = rng.choice(ways) if rng.random() < eager else ways[0]
    return way[graph.storage]


def random_drops(graph: StepGraph, way: np.ndarray, rng: random.Random) -> Relation | None:
    """For each DROPPED storage any of its uses, in a step without phases."""
    if graph.has_phases() or rng.random() < 0.1:
        return None
    chance = rng.choice([0.2, 0.6, 1.0])
    return Relation(
        [o for o in sorted(users) if rng.random() < chance] if way[s] == Way.DROPPED else []
        for s, users in enumerate(graph.users())
    )


def random_schedule(graph: StepGraph, seed: int) -> Schedule:
    rng = random.Random(seed)
    order = np.arange(len(graph), dtype=np.int64) if rng.random() < 0.3 else random_order(graph, rng)
    way = random_way(graph, rng)
    return Schedule(order, way, random_drops(graph, way, rng))
