"""The specification of `stowplan.scheduling.simulate`, in plain Python: the live bytes of a step under a schedule.

Two passes. The first finds what is recomputed before each operator, and so for how long each value is needed: a value
that is KEPT, PACKED or SWAPPED is there whenever a recomputation asks, so that nothing here depends on bytes. The
second counts the bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stowplan.scheduling.graph import StepGraph
from stowplan.scheduling.schedule import Rates, Schedule, Way


@dataclass
class Outcome:
    """What `simulate` says.

    peak: bytes, without the resident storages. place: position in the order of the operator before, or in, which the
    peak is. rerun: which operator ran again at the peak, or -1. extra_seconds: of recomputation, packing and stalls.
    recomputed: (position, operators in their order) of each recomputation. released: for each value the position after
    which it goes for the last time (-1: it never was there, or stays). live: bytes at each position's fullest moment.
    """

    peak: int = 0
    place: int = -1
    rerun: int = -1
    extra_seconds: float = 0.0
    recomputed: list[tuple[int, list[int]]] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    live: list[int] = field(default_factory=list)


def simulate(graph: StepGraph, schedule: Schedule, rates: Rates | None = None) -> Outcome:
    simulation = _Simulation(graph, schedule, rates or Rates())
    simulation.find_uses()
    simulation.find_recomputed()
    simulation.count_bytes()
    return simulation.outcome


class _Simulation:
    def __init__(self, graph: StepGraph, schedule: Schedule, rates: Rates) -> None:
        self.graph, self.schedule, self.rates = graph, schedule, rates
        self.n, self.m = len(graph), graph.values
        self.reads = [sorted(set(row)) for row in graph.reads.rows()]
        self.writes = [sorted(set(row)) for row in graph.writes.rows()]
        self.order, self.way = schedule.order.tolist(), schedule.way.tolist()
        self.storage, self.size, self.packed = (
            each.tolist() for each in (graph.storage, graph.size, graph.packed)
        )
        self.resident = [bool(graph.resident[s]) for s in self.storage]
        self.writers = graph.writers()
        self.position = {operator: p for p, operator in enumerate(self.order)}
        self.outcome = Outcome(released=[-1] * self.m, live=[0] * self.n)

    def find_uses(self) -> None:
        """For each storage its uses by operators, by position, the last of them in the phase that wrote it ("near",
        together with the program's own), and the last of all."""
        graph, position = self.graph, self.position
        owned: dict[int, list[int]] = {}
        for v in range(self.m):
            owned.setdefault(self.storage[v], []).append(v)
        self.uses: dict[int, set[int]] = {s: set() for s in owned}
        for p, operator in enumerate(self.order):
            for v in {*self.reads[operator], *self.writes[operator]}:
                self.uses[self.storage[v]].add(p)
        self.near, self.last = dict.fromkeys(owned, -1), dict.fromkeys(owned, -1)
        self.drops: dict[int, set[int]] = {}
        for s, values in owned.items():
            first_writers = [self.writers[v][0] for v in values if self.writers[v]]
            if first_writers:
                phase = graph.phase[min(first_writers)]
                self.near[s] = max(p for p in self.uses[s] if graph.phase[self.order[p]] == phase)
            held = max((position[int(graph.held[v])] for v in values if graph.held[v] >= 0), default=-1)
            near = self.near[s] = max(self.near[s], held)
            named = self.schedule.drops[s] if self.schedule.drops else []
            self.drops[s] = {near, *(position[o] for o in named if held <= position[o] < near)}
            # One past the last position: a value of the results.
            ends = self.n if graph.kept[values].any() else -1
            self.last[s] = ends if ends >= 0 else max([*self.uses[s], near], default=-1)

    # --- first pass: what is recomputed, and how long each storage is needed ------------------------------------------

    def find_recomputed(self) -> None:
        self.needed = dict(self.last)
        self.asked: dict[int, set[int]] = {s: set() for s in self.last}  # where a recomputation reads it
        self.recomputed: dict[int, list[int]] = {}
        there = [self.resident[v] or not self.writers[v] for v in range(self.m)]
        for p, operator in enumerate(self.order):
            missing = [v for v in self.reads[operator] if not there[v]]
            if missing:
                again = self.run_again(p, missing, there)
                self.recomputed[p] = sorted(again, key=self.position.__getitem__)
                for v in (v for one in again for v in self.writes[one]):
                    there[v] |= self.last[self.storage[v]] >= p
            for v in self.writes[operator]:
                there[v] = True
            for v in range(self.m):
                s = self.storage[v]
                if (
                    not self.resident[v]
                    and self.way[v] == Way.DROPPED
                    and (p in self.drops[s] or p >= self.last[s])
                ):
                    there[v] = False

    def run_again(self, p: int, missing: list[int], there: list[bool]) -> set[int]:
        again: set[int] = set()
        stack = [self.writers[v][0] for v in missing]
        while stack:
            one = stack.pop()
            if one in again:
                continue
            again.add(one)
            for v in self.reads[one]:
                if there[v]:
                    self.needed[self.storage[v]] = max(self.needed[self.storage[v]], p)
                    self.asked[self.storage[v]].add(p)
                else:
                    stack.append(self.writers[v][0])
        return again

    # --- second pass: bytes -------------------------------------------------------------------------------------------

    def count_bytes(self) -> None:
        needs = {s: self.uses[s] | self.asked[s] for s in self.uses}
        evicted, fetched, stalls = swap_layout(self.graph, self.schedule, self.near, needs, self.rates)
        self.packing = self.live = 0  # packing: bytes packed and unpacked
        self.present, self.small = [False] * self.m, [False] * self.m  # small: packed
        self.count: Counter[int] = Counter()  # of each storage: values that are there
        for p, operator in enumerate(self.order):
            for v in evicted.get(p, ()):
                self.drop(v, p)
            for v in fetched.get(p, ()):
                self.take(v)
            self.recompute(p, self.recomputed.get(p, []))
            for v in self.reads[operator]:
                self.unpack(v)
            for v in self.writes[operator]:
                self.take(v)
            self.note(p, int(self.graph.workspace[operator]))
            self.release(p)
        self.outcome.extra_seconds += self.packing / self.rates.pack + stalls

    def recompute(self, p: int, again: list[int]) -> None:
        left = Counter(v for one in again for v in self.reads[one])
        temporary: set[int] = set()
        for one in again:
            for v in self.reads[one]:
                self.unpack(v)
            made = [v for v in self.writes[one] if self.storage[v] == v and self.present[v]]
            copies = sum(self.size[v] for v in made if not self.resident[v])
            for v in self.writes[one]:
                if not self.present[v]:
                    temporary.add(v)
                    self.take(v)
            self.note(p, int(self.graph.workspace[one]) + copies, one)
            self.outcome.extra_seconds += float(self.graph.seconds[one])
            left.subtract(self.reads[one])
            for v in [*self.reads[one], *self.writes[one]]:
                if v in temporary and left[v] == 0 and self.last[self.storage[v]] < p:
                    temporary.discard(v)
                    self.drop(v, p)
        if again:
            self.outcome.recomputed.append((p, again))

    def release(self, p: int) -> None:
        for v in (v for v in range(self.m) if self.present[v]):
            s = self.storage[v]
            if self.needed[s] <= p or (p in self.drops[s] and self.way[v] == Way.DROPPED):
                self.drop(v, p)
            elif p == self.near[s] and self.way[v] == Way.PACKED:
                self.small[v] = True
                self.live -= self.size[v] - self.packed[v]
                self.packing += self.size[v]

    def take(self, v: int) -> None:
        if self.resident[v] or self.present[v]:
            return
        self.present[v] = True
        self.count[self.storage[v]] += 1
        if self.count[self.storage[v]] == 1:
            self.live += self.size[self.storage[v]]

    def drop(self, v: int, p: int) -> None:
        s = self.storage[v]
        if self.resident[v] or not self.present[v]:
            return
        self.present[v] = False
        if self.way[v] == Way.DROPPED or p <= self.needed[s]:  # else it is a copy
            self.outcome.released[v] = p
        self.count[s] -= 1
        if self.count[s] == 0:
            self.live -= self.packed[s] if self.small[v] else self.size[s]
        self.small[v] = False

    def note(self, p: int, more: int, rerun: int = -1) -> None:
        now = self.live + more
        self.outcome.live[p] = max(self.outcome.live[p], now)
        if now > self.outcome.peak:
            self.outcome.peak, self.outcome.place, self.outcome.rerun = now, p, rerun

    def unpack(self, v: int) -> None:
        if self.small[v]:
            self.small[v] = False
            self.live += self.size[v] - self.packed[v]
            self.packing += self.size[v]


def swap_layout(
    graph: StepGraph, schedule: Schedule, near: dict[int, int], needs: dict[int, set[int]], rates: Rates
) -> tuple[dict[int, list[int]], dict[int, list[int]], float]:
    """When swapped values leave and come back: by position, before its operator; and the seconds of stalls.

    The clock is that of the operators alone. One transfer at a time: evictions follow each other from the end of the
    last near use on; fetches are laid out backwards from the next needs, each as late as it may. Where the two overlap,
    the step stalls for as long. For values ON_DEMAND it stalls twice: when they go, behind all that is going then, and
    when they come.
    """
    n = len(graph)
    clock = [0.0]
    for operator in schedule.order.tolist():
        clock.append(clock[-1] + float(graph.seconds[operator]))
    swapped = []
    for v in range(graph.values):
        later = [p for p in needs[int(graph.storage[v])] if p > near[int(graph.storage[v])]]
        if schedule.way[v] >= Way.SWAPPED and later:
            swapped.append((v, near[v], min(later)))
    done, waited, out = 0.0, 0.0, {}
    start, into = float("inf"), {}
    for v, gone, back in sorted(swapped, key=lambda t: (t[1], t[0])):
        seconds = int(graph.size[v]) / rates.swap
        if schedule.way[v] == Way.ON_DEMAND:
            waited += max(0.0, done - clock[gone + 1]) + 2 * seconds
            done, out[v], into[v] = clock[gone + 1], gone + 1, back
            continue
        done = max(done, clock[gone + 1]) + seconds
        out[v] = next((p for p in range(gone + 1, n) if clock[p] >= done), n)
    for v, _, back in sorted(swapped, key=lambda t: (-t[2], t[0])):
        if schedule.way[v] == Way.ON_DEMAND:
            continue
        start = min(start, clock[back]) - int(graph.size[v]) / rates.swap
        into[v] = max((p for p in range(back + 1) if clock[p] <= start), default=0)
    evicted: dict[int, list[int]] = {}
    fetched: dict[int, list[int]] = {}
    for v, _, _ in swapped:
        if out[v] < into[v]:  # else it never leaves: it would have to come back before it is gone
            evicted.setdefault(out[v], []).append(v)
            fetched.setdefault(into[v], []).append(v)
    return evicted, fetched, waited + max(0.0, done - start)
