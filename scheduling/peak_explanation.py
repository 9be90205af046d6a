"""The values alive at the fullest moment of a scheduled step.

The simulator tells how many bytes that are, and when: while the operator at a position runs, or one that runs again for
it. Here the step is gone through once, value by value, up to that moment::

    before a position    values are evicted or fetched
    what runs again      unpacks what it reads; its results stay, if an operator will read them
    the operator         unpacks what it reads; its results come
    after it             values without later readers go, values to be dropped or packed go or shrink

What exists then, the workspace of what runs, and the copies that a rerun makes of what exists already, add up to
the peak. O(n + m + k) for k reads and writes, those of reruns included, in addition to one evaluation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..common.units import human_bytes
from .graph import Phase, StepGraph
from .schedule import Rates, Schedule, Way
from .simulate import Outcome, simulate, simulator


@dataclass(frozen=True)
class Alive:
    """What is alive at the peak.

    Attributes
    ----------
    operator
        The operator that runs at that moment; -1 where nothing is ever alive.
    again
        Whether it is one that runs again.
    storages
        (value that has the storage, bytes of it that exist), most bytes first; without the resident ones.
    workspace
        Bytes of the operator's own, and of copies that it makes, running again, of values that exist.
    """

    operator: int
    again: bool
    storages: tuple[tuple[int, int], ...]
    workspace: int


def alive_at_peak(graph: StepGraph, schedule: Schedule, rates: Rates | None = None) -> Alive:
    """List what is alive at a schedule's peak.

    Raises
    ------
    ScheduleError
        The schedule is not one of this graph.
    """
    outcome = simulate(graph, schedule, rates)
    if outcome.place < 0:
        return Alive(-1, False, (), 0)
    return _Walk(graph, schedule, rates or Rates()).to_the_peak(outcome)


class _Walk:
    """What exists while a step goes on."""

    def __init__(self, graph: StepGraph, schedule: Schedule, rates: Rates) -> None:
        self.graph, self.schedule = graph, schedule
        self.of: list[int] = graph.storage.tolist()
        self.way: list[int] = schedule.way.tolist()
        self.resident = [bool(graph.resident[s]) for s in self.of]
        self.reads = [sorted(set(row)) for row in graph.reads.rows()]
        self.writes = [sorted(set(row)) for row in graph.writes.rows()]
        core = simulator(graph, schedule, rates)
        core.evaluate()
        near, self.last, self.needed = (row.tolist() for row in core.intervals())
        place = {operator: position for position, operator in enumerate(schedule.order.tolist())}
        rows = [] if schedule.drops is None else schedule.drops.rows()
        # Those before the near use are none: the program holds the value.
        drops = {s: {p for o in row if (p := place[o]) >= near[s]} for s, row in enumerate(rows)}
        self.there: set[int] = set()
        self.small: set[int] = set()  # packed
        self.shrinks: dict[int, list[int]] = {}  # by position: values to look at after it
        for v in range(graph.values):
            if not self.resident[v]:
                for position in {near[v], self.needed[v], *drops.get(self.of[v], ())}:
                    self.shrinks.setdefault(position, []).append(v)

    def to_the_peak(self, outcome: Outcome) -> Alive:
        evicted: dict[int, list[int]] = {}
        fetched: dict[int, list[int]] = {}
        for v, out, back in outcome.swapped:
            evicted.setdefault(out, []).append(v)
            fetched.setdefault(back, []).append(v)
        recomputed = dict(outcome.recomputed)
        for position, operator in enumerate(self.schedule.order.tolist()):
            self.there.difference_update(evicted.get(position, ()))
            self.there.update(fetched.get(position, ()))
            until = outcome.rerun if position == outcome.place else -1
            copies = self.run_again(position, recomputed.get(position, ()), until)
            if copies is not None:
                return self.alive(until, True, copies)
            self.small.difference_update(self.reads[operator])
            self.there.update(v for v in self.writes[operator] if not self.resident[v])
            if position == outcome.place:
                return self.alive(operator, False, 0)
            self.let_go(position)
        raise AssertionError("the peak is at a position of the order")

    def run_again(self, position: int, operators: tuple[int, ...], until: int) -> int | None:
        """Run operators again, up to one of them; return the bytes of its copies where it is among them."""
        left = Counter(v for one in operators for v in self.reads[one])
        temporary: set[int] = set()
        for one in operators:
            reads, writes = self.reads[one], [v for v in self.writes[one] if not self.resident[v]]
            self.small.difference_update(reads)
            copies = [v for v in writes if v in self.there and self.of[v] == v]
            temporary.update(v for v in writes if v not in self.there)
            self.there.update(writes)
            if one == until:
                return sum(int(self.graph.size[v]) for v in copies)
            left.subtract(reads)
            over = {
                v for v in (*reads, *writes) if v in temporary and left[v] == 0 and self.last[v] < position
            }
            temporary -= over
            self.there -= over
        return None

    def let_go(self, position: int) -> None:
        """After an operator: what is over goes, or is packed."""
        for v in self.shrinks.get(position, ()):
            if v not in self.there:
                continue
            if self.needed[v] <= position or self.way[v] == Way.DROPPED:
                self.there.discard(v)
                self.small.discard(v)
            elif self.way[v] == Way.PACKED:
                self.small.add(v)

    def alive(self, operator: int, again: bool, copies: int) -> Alive:
        graph = self.graph
        packed = {self.of[v] for v in self.small}
        found = [
            (s, int(graph.packed[s] if s in packed else graph.size[s]))
            for s in {self.of[v] for v in self.there}
        ]
        storages = sorted((pair for pair in found if pair[1]), key=lambda pair: (-pair[1], pair[0]))
        return Alive(operator, again, tuple(storages), int(graph.workspace[operator]) + copies)


def floor_of(graph: StepGraph, schedule: Schedule, rates: Rates | None = None) -> str:
    """Tell what makes a schedule's peak, and what would lower it, as a clause: for a schedule with the least peak.

    Parameters
    ----------
    graph, schedule, rates
        As for `alive_at_peak`.
    """
    found = alive_at_peak(graph, schedule, rates)
    if found.operator < 0:
        return "nothing is ever alive"
    values = {*graph.reads[found.operator], *graph.writes[found.operator]}
    own = {int(graph.storage[v]) for v in values}
    used = sum(size for storage, size in found.storages if storage in own)
    others = [pair for pair in found.storages if pair[0] not in own]
    beside = sum(size for _, size in others)
    text = (
        f"the least is reached where {graph.label[found.operator] or f'operator {found.operator}'} runs"
        f"{' again' if found.again else ''}, with {human_bytes(found.workspace)} of workspace and {human_bytes(used)} "
        f"that it reads and writes, and {human_bytes(beside)} in {len(others)} other value{'s' * (len(others) != 1)}"
    )
    if others:
        text += f" (the largest: {graph.name[others[0][0]] or f'value {others[0][0]}'}, {human_bytes(others[0][1])})"
    if beside > found.workspace + used:
        return f"{text}; to swap values, or a smaller batch, would lower it"
    if graph.phase[found.operator] == Phase.UPDATE:
        return f"{text}; smaller parameters, or another optimizer, would lower it"
    if found.workspace > used:
        return f"{text}; a smaller batch for that operator, or another algorithm for it, would lower it"
    return f"{text}; a smaller batch for that operator would lower it"
