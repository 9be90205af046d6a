"""chain: the fastest schedule of a network without branches, exactly, by dynamic programming over what is kept.

::

    input -> s1 -> s2 -> s3 -> s4 -> s5 -> loss        each operator reads what the one before it wrote
             kept  |  dropped |  kept                  segment (s1, s4]: s2 and s3 are made again from s1

What is kept cuts the chain into segments, and the backward pass goes through them from the last to the first. While it
is in one, those after it are gone, and of those before it only what is kept is alive: a number of bytes, whatever it
is that is kept. So a state is the storage kept last and the bytes kept before it, with the least extra seconds; a
segment may follow where its own peak and these bytes fit the budget. What a segment needs, and takes, the simulator
says, with all storages kept but those inside it.

For l storages O(l^2) simulations, and O(l^2 k) steps for k numbers of bytes that matter: those that no other beats both
in bytes and in seconds (Beaumont et al. 2019 and 2021, sections 4 and 5, for a memory in slots; here in bytes, and
without dropping anything twice, which a schedule of ours does not do). Optimal among the schedules that keep or drop
values in the recorded order.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from ..graph import IntArray, Phase, StepGraph
from ..orders import recorded
from ..registry import Answer, NotApplicable, SchedulingOptions, register
from ..schedule import Schedule, Way, as_recorded
from ..simulate import simulate, simulator
from ..storages import Storages

LONGEST = 160

# States of one storage; beyond, the slowest ones go, and the answer is not proved optimal.
MOST_STATES = 4_000


class _State(NamedTuple):
    """A way to get to a storage: bytes kept before it, seconds, the storage kept before and the state there."""

    bytes: int
    seconds: float
    kept: int
    before: _State | None


@register("chain")
def chain(graph: StepGraph, options: SchedulingOptions) -> Answer:
    """Return the fastest schedule within the budget, else the recorded one.

    Raises
    ------
    NotApplicable
        The forward pass branches, the backward pass does not go back along it, or there are more than `LONGEST`
        storages.
    """
    storages = Storages(graph)
    names = _links(storages)
    order = recorded(graph)
    segments = _Segments(graph, names, order)
    if options.budget is None:
        return Answer(Schedule(order, as_recorded(graph).way), optimal=True)
    states: list[list[_State]] = [[_State(0, 0.0, -1, None)], *([] for _ in names), []]
    complete = True
    last = len(names) + 1
    for begin in range(last):
        states[begin], all_kept = _undominated(states[begin])
        complete &= all_kept
        if not states[begin]:
            continue
        own = int(graph.size[names[begin - 1]]) if begin else 0
        for end in range(begin + 1, last + 1):
            peak, seconds = segments.of(begin, end)
            for state in states[begin]:
                if peak + state.bytes <= options.budget:
                    states[end].append(_State(state.bytes + own, state.seconds + seconds, begin, state))
    if not states[last]:
        return Answer(Schedule(order, as_recorded(graph).way))
    best: _State | None = min(states[last], key=lambda state: (state.seconds, state.bytes))
    kept = []
    while best is not None:
        if best.kept > 0:
            kept.append(names[best.kept - 1])
        best = best.before
    # Another way than dropping, where the graph offers one, might be faster still.
    alone = all(set(storages.ways[s]) <= {Way.KEPT, Way.DROPPED, Way.SWAPPED} for s in storages.ways)
    way = storages.keeping(kept)
    found = Schedule(order, way)
    # A value that the program holds reaches from one segment into the next, which the states do not see.
    fits = simulate(graph, found, options.rates).peak <= options.budget
    return Answer(found, optimal=fits and complete and alone and not options.swap)


def _undominated(states: list[_State]) -> tuple[list[_State], bool]:
    """Keep the states that no other beats in bytes and seconds; and say whether that was all of them."""
    found: list[_State] = []
    for state in sorted(states, key=lambda s: (s.bytes, s.seconds)):
        if not found or state.seconds < found[-1].seconds:
            found.append(state)
    return found[-MOST_STATES:], len(found) <= MOST_STATES


def _links(storages: Storages) -> list[int]:
    """Return the storages of the chain in order."""
    graph = storages.graph
    names = storages.forward()
    if not names or len(names) > LONGEST:
        raise NotApplicable(
            f"chain needs 1 to {LONGEST} storages that may be dropped; there are {len(names)}"
        )
    droppable = set(names)
    for before, one in itertools.pairwise([-1, *names]):
        branches = (storages.sources[one] & droppable) - {before}
        if branches:
            raise NotApplicable(
                f"chain needs a network without branches; {graph.name[one]} (value {one}) is also made from "
                f"{graph.name[min(branches)]} (value {min(branches)})"
            )
        if len(storages.writers[one]) != 1 or len(droppable & set(_written(storages, one))) != 1:
            raise NotApplicable(
                f"chain needs one operator for each storage; {graph.name[one]} (value {one}) has "
                f"{len(storages.writers[one])}, or shares it with others"
            )
    return names


def _written(storages: Storages, one: int) -> list[int]:
    return [storages.of[v] for v in storages.graph.writes[storages.writers[one][0]]]


class _Segments:
    """What each segment needs and takes, by simulation.

    A segment (b, e) keeps storage b, drops those between, and keeps storage e, counted from 1; 0 is the input, and the
    number after the last is the loss.
    """

    def __init__(self, graph: StepGraph, names: list[int], order: IntArray) -> None:
        self._names = names
        self._level = _levels(graph, names, order)
        self._core = simulator(graph, Schedule(order, as_recorded(graph).way))
        # Bytes of the storages that are kept before each, where they are alive.
        self._size = np.array([int(graph.size[s]) for s in names], dtype=np.int64)
        self._alive = _alive(graph, names, order)
        for s in names:
            self._core.set_way(s, int(Way.KEPT))
        _, _, _, self._base = self._core.evaluate()

    def of(self, begin: int, end: int) -> tuple[int, float]:
        """Return the peak while the step is in the segment, without what is kept before it; and its extra seconds."""
        for s in self._names[begin : end - 1]:
            self._core.set_way(s, int(Way.DROPPED))
        _, _, _, seconds = self._core.evaluate()
        live = self._core.live()
        for s in self._names[begin : end - 1]:
            self._core.set_way(s, int(Way.KEPT))
        here = (self._level > begin) & (self._level <= end) if begin else self._level <= end
        before = max(0, begin - 1)
        live = live - self._alive[:before].T @ self._size[:before] if before else live
        return int(live[here].max(initial=0)), seconds - self._base


def _levels(graph: StepGraph, names: list[int], order: IntArray) -> IntArray:
    """Return for each position how far along the chain the step is: the storage written, or read by the way back.

    Raises
    ------
    NotApplicable
        The way back goes forward.
    """
    number = {s: k + 1 for k, s in enumerate(names)}
    storage = graph.storage.tolist()
    level, found = 0, []
    for operator in order.tolist():
        touched = [
            number[storage[v]]
            for v in (*graph.writes[operator], *graph.reads[operator])
            if storage[v] in number
        ]
        if graph.phase[operator] == Phase.FORWARD:
            level = max([level, *touched])
        else:
            if touched and max(touched) > level:
                raise NotApplicable(
                    f"chain needs a backward pass that goes back; {graph.label[operator]} (operator {operator}) "
                    "reads what comes after what others before it have read"
                )
            level = max(touched, default=level)
        found.append(level)
    return np.array(found, dtype=np.int64)


def _alive(graph: StepGraph, names: list[int], order: IntArray) -> IntArray:
    """Return for each storage and position whether it is alive there when everything is kept, (l, n)."""
    number = {s: k for k, s in enumerate(names)}
    alive = np.zeros((len(names), len(graph)), dtype=np.int64)
    first: dict[int, int] = {}
    for place, operator in enumerate(order.tolist()):
        for v in (*graph.writes[operator], *graph.reads[operator]):
            s = int(graph.storage[v])
            if s in number:
                first.setdefault(s, place)
                alive[number[s], first[s] : place + 1] = 1
    for v in np.flatnonzero(graph.held >= 0).tolist():
        s = int(graph.storage[v])
        if s in first:
            place = int(np.flatnonzero(order == graph.held[v])[0])
            alive[number[s], first[s] : place + 1] = 1
    return alive
