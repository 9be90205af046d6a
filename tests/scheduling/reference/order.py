"""The specification of `stowplan.scheduling.ordering`, in plain Python: the least peak, by trying all orders."""

from __future__ import annotations

from functools import cache
from random import Random

from stowplan.scheduling import StepGraph


class Sets:
    """Bytes alive, as a function of the set of operators that have run (a bit each)."""

    def __init__(self, graph: StepGraph) -> None:
        self.n = len(graph)
        self.workspace = graph.workspace.tolist()
        self.before = [sum(1 << j for j in row) for row in graph.dependencies().rows()]
        writers: dict[int, int] = {}
        users: dict[int, int] = {}
        storage = graph.storage.tolist()
        for operator, (reads, writes) in enumerate(zip(graph.reads.rows(), graph.writes.rows(), strict=True)):
            for v in writes:
                writers[storage[v]] = writers.get(storage[v], 0) | 1 << operator
            for v in (*reads, *writes):
                users[storage[v]] = users.get(storage[v], 0) | 1 << operator
        for v, until in enumerate(graph.held.tolist()):
            if until >= 0:
                users[storage[v]] = users.get(storage[v], 0) | 1 << until
        kept = {storage[v] for v in range(graph.values) if graph.kept[v]}
        self.storages = [
            (int(graph.size[s]), writers[s], users[s], s in kept) for s in writers if not graph.resident[s]
        ]

    def live(self, begun: int, done: int) -> int:
        """Bytes alive when these operators have begun and those are done."""
        return sum(
            size
            for size, writers, users, kept in self.storages
            if writers & begun and (kept or users & ~done)
        )

    def step(self, done: int, operator: int) -> int:
        """Bytes at the fullest moment of an operator that runs when those are done."""
        return self.live(done | 1 << operator, done) + int(self.workspace[operator])

    def ready(self, done: int) -> list[int]:
        return [i for i in range(self.n) if not done >> i & 1 and self.before[i] & ~done == 0]


def least_peak(graph: StepGraph) -> int:
    """The least peak over all orders, by dynamic programming over sets. O(2^n)."""
    sets = Sets(graph)
    everything = (1 << sets.n) - 1

    @cache
    def rest(done: int) -> int:
        if done == everything:
            return 0
        return min(max(sets.step(done, i), rest(done | 1 << i)) for i in sets.ready(done))

    return rest(0)


def layered(operators: int, edges: int, width: int, seed: int) -> StepGraph:
    """A random graph in layers: each operator writes one value, and reads some of the layer before."""
    rng = Random(seed)
    layer = [i // width for i in range(operators)]
    reads: list[set[int]] = [set() for _ in range(operators)]
    for i in range(width, operators):
        reads[i].add(rng.choice([j for j in range(i) if layer[j] == layer[i] - 1]))
    while sum(map(len, reads)) < edges:
        i = rng.randrange(width, operators)
        reads[i].add(rng.choice([j for j in range(i) if layer[j] == layer[i] - 1]))
    size = [rng.randint(1, 100) for _ in range(operators)]
    return StepGraph(map(sorted, reads), [[i] for i in range(operators)], size)
