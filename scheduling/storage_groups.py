"""What solvers ask of a step graph: its storages, their writers and what these read, and which may be dropped."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .graph import IntArray, Phase, StepGraph
from .schedule import Way, choices, read_later


class Storages:
    """The storages of a graph, named by the value that has each.

    Attributes
    ----------
    of
        For each value its storage.
    ways
        For each storage the ways that it may take, KEPT first.
    later
        For each storage whether a later phase reads it: whether it costs memory through the step.
    writers
        For each storage the operators that write one of its values, in the order of the step.
    sources
        For each storage those that its writers read, without itself and without resident ones.
    """

    def __init__(self, graph: StepGraph) -> None:
        self.graph = graph
        self.of: list[int] = graph.storage.tolist()
        self.ways = choices(graph)
        self.later = read_later(graph)
        self.writers: dict[int, list[int]] = {s: [] for s in self.later}
        self.sources: dict[int, set[int]] = {s: set() for s in self.later}
        reads = graph.reads.rows()
        resident = {s for s in self.later if graph.resident[s]}
        for operator, written in enumerate(graph.writes.rows()):
            for s in dict.fromkeys(self.of[v] for v in written):
                self.writers[s].append(operator)
                self.sources[s].update({self.of[v] for v in reads[operator]} - resident - {s})

    def droppable(self, storage: int) -> bool:
        """Whether it may be dropped."""
        return Way.DROPPED in self.ways[storage]

    def forward(self) -> list[int]:
        """Return the storages that forward operators write first and that may be dropped, as they are written."""
        phase = self.graph.phase
        found = [
            s
            for s, writers in self.writers.items()
            if writers and self.droppable(s) and phase[writers[0]] == Phase.FORWARD
        ]
        return sorted(found, key=lambda s: self.writers[s][0])

    def keeping(self, kept: Iterable[int]) -> IntArray:
        """Return the ways, int64 (m,), where these storages stay and all others go that may."""
        way = np.zeros(self.graph.values, dtype=np.int64)
        way[[s for s in {*self.ways} - {*kept} if self.droppable(s)]] = Way.DROPPED
        return way[self.graph.storage]
