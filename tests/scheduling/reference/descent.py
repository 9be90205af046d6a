"""The specification of the compiled descent (``core/descent/``) in plain Python: lazy greedy down, knapsack back up."""

from __future__ import annotations

import heapq
from itertools import pairwise

import numpy as np

from stowplan.scheduling import Rates, Schedule, StepGraph, Way, simulate
from stowplan.scheduling.simulate import Outcome

FREE, SAME = 1e-7, 1e-12


class Descent:
    """The ways of one graph in one order, on the way to a budget."""

    def __init__(
        self, graph: StepGraph, schedule: Schedule, ways: np.ndarray, budget: int, rates: Rates
    ) -> None:
        self.graph, self.order, self.budget, self.rates = graph, schedule.order, budget, rates
        self.may = [[w for w in range(4) if ways[s] >> w & 1] for s in range(graph.values)]
        self.way = schedule.way.copy()
        self.least = max(float(graph.seconds.sum()) * FREE, SAME)
        place = np.empty(len(graph), dtype=np.int64)
        place[self.order] = np.arange(len(graph))
        self.uses: dict[int, list[int]] = {}
        self.writers: dict[int, set[int]] = {}
        for operator in range(len(graph)):
            for v in graph.writes[operator]:
                self.writers.setdefault(int(graph.storage[v]), set()).add(operator)
            for v in (*graph.writes[operator], *graph.reads[operator]):
                self.uses.setdefault(int(graph.storage[v]), []).append(int(place[operator]))
        self.place = place
        free = [s for s in range(graph.values) if len(self.may[s]) > 1]
        start = {s: min(int(place[o]) for o in self.writers[s]) for s in free}
        self.free = sorted(free, key=lambda s: start[s])
        self.now = self.look(())

    def look(self, move: tuple[tuple[int, int], ...]) -> Outcome:
        way = self.way.copy()
        for s, w in move:
            way[s] = w
        return simulate(self.graph, Schedule(self.order, way[self.graph.storage]), self.rates)

    def make(self, move: tuple[tuple[int, int], ...]) -> None:
        for s, w in move:
            self.way[s] = w
        self.now = self.look(())

    def excess(self, outcome: Outcome) -> int:
        return int(np.maximum(outcome.live - self.budget, 0).sum())

    def worth(self, outcome: Outcome) -> float:
        gain = float(self.excess(self.now) - self.excess(outcome))
        return gain / max(outcome.extra_seconds - self.now.extra_seconds, self.least) if gain > 0 else -1.0

    def rewritten(self) -> set[int]:
        again = {o for _, row in self.now.recomputed for o in row}
        return {s for s, writers in self.writers.items() if writers & again}

    def most(self, s: int) -> float:
        graph = self.graph
        phase = graph.phase[min(self.writers[s])]
        near = max(p for p in self.uses[s] if graph.phase[self.order[p]] == phase)
        for v in np.flatnonzero((graph.storage == s) & (graph.held >= 0)):
            near = max(near, int(self.place[graph.held[v]]))
        later = [p for p in self.uses[s] if p > near]
        # Without another use it stays as long as recomputations read it.
        asked = [
            p
            for p, row in self.now.recomputed
            for o in row
            if any(graph.storage[v] == s for v in graph.reads[o])
        ]
        back = min(later) if later else max([near, *asked])
        crowded = int((self.now.live[near + 1 : back] > self.budget).sum())
        seconds = 0.0
        for o in sorted(self.writers[s]):
            seconds += float(graph.seconds[o])
        return float(graph.size[s]) * crowded / max(seconds, self.least)

    def fall(self) -> bool:
        moved = True
        while moved and self.excess(self.now) > 0:
            heap, moves, later = [], [], []
            rewritten = self.rewritten()
            for s in self.free:
                kept = self.way[s] == Way.KEPT
                most = self.most(s) if kept else 0.0
                if (most <= 0) if kept else (self.way[s] == Way.DROPPED and s not in rewritten):
                    continue
                for w in self.may[s]:
                    if w == self.way[s]:
                        continue
                    if kept and w == Way.DROPPED:
                        heap.append((-most, len(moves), -1))
                    else:
                        later.append(len(moves))
                    moves.append(((s, w),))
            for k in later:
                worth = self.worth(self.look(moves[k]))
                if worth > 0:
                    heap.append((-worth, k, 0))
            heapq.heapify(heap)
            moved, turn = False, 0
            while heap and self.excess(self.now) > 0:
                worth, k, seen = heapq.heappop(heap)
                if seen != turn:
                    worth = -self.worth(self.look(moves[k]))
                    if worth >= 0:
                        continue
                    if heap and (worth, k) > heap[0][:2]:
                        heapq.heappush(heap, (worth, k, turn))
                        continue
                self.make(moves[k])
                turn, moved = turn + 1, True
        return self.excess(self.now) == 0

    def rise(self) -> None:
        moved = True
        while moved:
            moved, rewritten, found = False, self.rewritten(), []
            area = int(self.now.live.sum())
            for s in self.free:
                now = self.way[s]
                if now == Way.KEPT or (now == Way.DROPPED and s not in rewritten):
                    continue
                for w in self.may[s]:
                    if w == now:
                        continue
                    outcome = self.look(((s, w),))
                    saved = self.now.extra_seconds - outcome.extra_seconds
                    if self.excess(outcome) == 0 and saved > SAME:
                        found.append((saved / max(float(int(outcome.live.sum()) - area), 1.0), (s, w)))
            found.sort(key=lambda t: -t[0])
            assert all(a[0] >= b[0] for a, b in pairwise(found))
            for _, (s, w) in found:
                before, was = self.now, self.way[s]
                self.make(((s, w),))
                if self.excess(self.now) > 0 or self.now.extra_seconds >= before.extra_seconds - SAME:
                    self.make(((s, was),))
                else:
                    moved = True
