"""Step graphs of whole networks, small and synthetic, for the tests of solvers."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import chain, combinations, product
from typing import Any

import numpy as np

from stowplan.scheduling import Phase, Relation, Schedule, StepGraph, Way, choices, lean, simulate


class Builder:
    """Values and operators one by one."""

    def __init__(self) -> None:
        self.size: list[int] = []
        self.resident: list[bool] = []
        self.label: list[str] = []
        self.rows: dict[str, list[Any]] = {
            key: [] for key in ("reads", "writes", "phase", "seconds", "workspace", "repeatable")
        }

    def value(self, size: int, resident: bool = False) -> int:
        self.size.append(size)
        self.resident.append(resident)
        return len(self.size) - 1

    def run(
        self,
        label: str,
        reads: list[int],
        sizes: list[int],
        phase: Phase = Phase.FORWARD,
        seconds: float = 1.0,
        workspace: int = 0,
        repeatable: bool = True,
    ) -> list[int]:
        written = [self.value(size) for size in sizes]
        self.label.append(label)
        row = reads, written, phase, seconds, workspace, repeatable and phase == Phase.FORWARD
        for column, entry in zip(self.rows.values(), row, strict=True):
            column.append(entry)
        return written

    def graph(self, packed: dict[int, int] | None = None) -> StepGraph:
        few = [(packed or {}).get(v, size) for v, size in enumerate(self.size)]
        return StepGraph(**self.rows, size=self.size, resident=self.resident, packed=few, label=self.label)


def chain_net(layers: int, seed: int) -> StepGraph:
    """Layers one after the other; each way back reads what its layer read, wrote, or both."""
    return branching_net(layers, seed, reach=1)


def branching_net(layers: int, seed: int, reach: int = 3) -> StepGraph:
    """As `chain_net`, but a layer reads any of so many values before it, or two of them."""
    rng = random.Random(seed)
    b = Builder()
    values = [b.value(rng.randrange(1, 9), resident=True)]
    edges = []
    for _ in range(layers):
        reads = rng.sample(values[-reach:], min(len(values[-reach:]), rng.choice([1, 1, 2])))
        size, seconds, workspace = rng.randrange(1, 20), rng.randrange(1, 9), rng.randrange(5)
        values += b.run("layer", reads, [size], seconds=seconds, workspace=workspace)
        edges.append((reads, values[-1]))
    gradient: list[int] = []
    for reads, written in reversed(edges):
        needs = rng.choice([reads, [written], [*reads, written]])
        size, seconds = rng.randrange(1, 20), rng.randrange(1, 9)
        gradient = b.run("layer'", needs + gradient, [size], Phase.BACKWARD, seconds)
    return b.graph()


def skipping(operators: int, seed: int) -> StepGraph:
    """A chain, half of whose operators also read one of up to six places back."""
    rng = random.Random(seed)
    reads: list[list[int]] = [[]]
    for i in range(1, operators):
        skip = [rng.randrange(max(0, i - 6), i)] if rng.random() < 0.5 else []
        reads.append(sorted({i - 1, *skip}))
    size, seconds = [rng.randint(1, 100) for _ in reads], [float(rng.randint(1, 10)) for _ in reads]
    return StepGraph(reads, [[i] for i in range(operators)], size, seconds=seconds)


def renumbered(graph: StepGraph, operators: list[int]) -> StepGraph:
    """A graph whose operator ``i`` writes value ``i``, recorded in another order."""
    place = {operator: position for position, operator in enumerate(operators)}
    reads = Relation(sorted(place[v] for v in graph.reads[o]) for o in operators)
    writes = [[i] for i in range(len(operators))]
    return StepGraph(reads, writes, graph.size[operators], seconds=graph.seconds[operators])


def subsets(operators: list[int]) -> Iterable[tuple[int, ...]]:
    return chain.from_iterable(combinations(operators, count) for count in range(len(operators) + 1))


def brute_force(graph: StepGraph, budget: int) -> tuple[float | None, int]:
    """The least extra seconds within a budget, and the least peak, over all values kept or dropped, and all drops."""
    may = [s for s, ways in choices(graph).items() if Way.DROPPED in ways]
    users = graph.users()
    # None: it is kept.
    kinds = [(None, *subsets([] if graph.has_phases() else sorted(users[s])[:-1])) for s in may]
    order = lean(graph).order
    outcomes = []
    for drops in product(*kinds):
        way = np.zeros(graph.values, dtype=np.int64)
        way[may] = [dropped is not None for dropped in drops]
        rows = dict(zip(may, drops, strict=True))
        found = Schedule(order, way[graph.storage], Relation(rows.get(v) or () for v in range(len(way))))
        outcomes.append(simulate(graph, found))
    fitting = [found.extra_seconds for found in outcomes if found.peak <= budget]
    return min(fitting, default=None), min(found.peak for found in outcomes)


def vgg16() -> StepGraph:
    """VGG-16 with one image, a layer an operator, and back along it; seconds are multiplications, in 1e9."""
    shapes, work = [(3, 224)], [1.0]
    for channels, count in zip((64, 128, 256, 512, 512), (2, 2, 3, 3, 3), strict=True):
        for _ in range(count):
            before, pixels = shapes[-1]
            work.append(1.0 + 9 * before * channels * pixels**2)
            shapes.append((channels, pixels))
        shapes.append((channels, pixels // 2))
        work.append(1.0 + 4 * channels * (pixels // 2) ** 2)
    for channels in (4096, 4096, 1000):
        work.append(1.0 + shapes[-1][0] * shapes[-1][1] ** 2 * channels)
        shapes.append((channels, 1))
    last = len(shapes) - 1
    size = [4 * channels * pixels**2 for channels, pixels in shapes]
    reads = [[i - 1] if i else [] for i in range(last + 1)]
    for layer in range(last + 1, 0, -1):  # from the loss on
        reads.append([layer - 1] if layer > last else [layer - 1, layer, len(reads) - 1])
        size.append(4 if layer > last else size[layer - 1])
        work.append(1000.0 if layer > last else 2 * work[layer])
    return StepGraph(reads, [[i] for i in range(len(reads))], size, seconds=[1e-9 * one for one in work])
