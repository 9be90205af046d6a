"""Orders to start from. The forward operators of a step with a backward pass stay as they are recorded.

::

    recorded      as it ran: Chainer walks its graph by ranks, so that branches, and the steps of a recurrent
                  network, advance together, and what each of them recomputes or restacks is alive at once
    reverse       last run forward, first run backward: a backward operator comes as late in the forward pass as the
                  latest forward value that it reads; one that reads none follows what it depends on
    depth first   the operator that has become ready last comes next: a branch is finished before another is begun
    smallest      of the operators that are ready, the one that adds the fewest bytes or frees the most; then as reverse

In a step without phases all operators may change places: there the order of `stowplan.scheduling.ordering` with the
smallest live peak joins the recorded one.

Each is one pass over the operators with a heap, O((n + e) log n); "smallest" O(n r) for r ready at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from graphlib import TopologicalSorter

import numpy as np

from .graph import IntArray, Phase, StepGraph
from .ordering.order import order as find_order
from .schedule import updates_early

# For the order with the smallest live peak.
ORDER_SECONDS = 2.0

# From an operator, and how many came before it, to its priority; the least comes first.
Priority = Callable[[int, int], tuple[int, ...]]


def recorded(graph: StepGraph) -> IntArray:
    """Return the order of the recording with early updates, int64 (n,)."""
    return updates_early(graph, np.arange(len(graph), dtype=np.int64))


def reverse_program(graph: StepGraph) -> IntArray:
    """Return the order in which the backward pass undoes the latest forward operators first, int64 (n,)."""
    born = _born(graph)
    return _ordered(graph, lambda operator, _: (-born[operator], operator))


def depth_first(graph: StepGraph) -> IntArray:
    """Return the order that continues with what has become ready last, int64 (n,)."""
    return _ordered(graph, lambda operator, ready: (-ready, operator))


def smallest(graph: StepGraph) -> IntArray:
    """Return the order that takes the ready operator which adds the fewest bytes, int64 (n,)."""
    born = _born(graph)
    storage: list[int] = graph.storage.tolist()
    size: list[int] = graph.size.tolist()
    lasting = graph.resident | graph.kept
    held = {s for v, s in enumerate(storage) if lasting[v] or graph.held[v] >= 0}
    touched = [
        {storage[v] for v in (*reads, *writes)} - held
        for reads, writes in zip(graph.reads.rows(), graph.writes.rows(), strict=True)
    ]
    left: dict[int, int] = {}
    for row in touched:
        for s in row:
            left[s] = left.get(s, 0) + 1
    alive: set[int] = set()
    fresh = [{storage[v] for v in writes} - held for writes in graph.writes.rows()]

    def run(operator: int) -> None:
        alive.update(fresh[operator])
        for s in touched[operator]:
            left[s] -= 1
            if not left[s]:
                alive.discard(s)

    def adds(operator: int) -> int:
        more: int = sum(size[s] for s in fresh[operator] if s not in alive)
        return more - sum(size[s] for s in touched[operator] if left[s] == 1)

    order, ready, waiting = _after_forward(graph)
    for operator in order:
        run(operator)
    while ready:
        chosen = min(ready, key=lambda o: (adds(o), -born[o], o))
        ready.remove(chosen)
        run(chosen)
        order.append(chosen)
        waiting.done(chosen)
        ready += waiting.get_ready()
    return updates_early(graph, np.array(order, dtype=np.int64))


def starting_points(graph: StepGraph) -> list[IntArray]:
    """Return the distinct orders of this module, the recorded one first; that alone where phases alternate."""
    orders = [recorded(graph)]
    if not graph.has_phases():
        orders.append(find_order(graph, time_limit=ORDER_SECONDS).order)
    elif _apart(graph):
        orders += [make(graph) for make in (reverse_program, depth_first, smallest)]
    return list({order.tobytes(): order for order in orders}.values())


def _apart(graph: StepGraph) -> bool:
    """Whether the forward operators wait for no other ones, so that they can run first."""
    first = graph.dependencies().first
    after = np.repeat(graph.phase, np.diff(first))
    before = graph.phase[graph.dependencies().index]
    return not bool(((after == Phase.FORWARD) & (before != Phase.FORWARD)).any())


def _born(graph: StepGraph) -> list[int]:
    """Return for each operator the number of the forward operator that it undoes, as far as what it reads tells."""
    writers = graph.writers()
    phase = graph.phase.tolist()
    born: list[int] = []
    for operator, (reads, before) in enumerate(
        zip(graph.reads.rows(), graph.dependencies().rows(), strict=True)
    ):
        if phase[operator] == Phase.FORWARD:
            born.append(operator)
            continue
        forward = [w for v in reads for w in writers[v][:1] if phase[w] == Phase.FORWARD]
        inherited = [born[i] for i in before if phase[i] != Phase.FORWARD]
        # What undoes operator k reads what k read and wrote; and it follows what undoes the readers of that.
        limit = min(inherited, default=len(graph))
        born.append(min(max(forward), limit) if forward else min(limit, len(graph)))
    return born


def _after_forward(graph: StepGraph) -> tuple[list[int], list[int], TopologicalSorter[int]]:
    """Return the forward operators, those that are ready once these have run, and what tells of the others."""
    waiting = TopologicalSorter(dict(enumerate(graph.dependencies().rows())))
    waiting.prepare()
    forward: list[int] = np.flatnonzero(graph.phase == Phase.FORWARD).tolist()
    ready: list[int] = []
    while found := waiting.get_ready():
        run = [operator for operator in found if graph.phase[operator] == Phase.FORWARD]
        ready += sorted({*found} - {*run})
        waiting.done(*run)
    return forward, ready, waiting


def _ordered(graph: StepGraph, priority: Priority) -> IntArray:
    order, ready, waiting = _after_forward(graph)
    heap = [(*priority(i, 0), i) for i in ready]
    heapq.heapify(heap)
    while heap:
        operator = heapq.heappop(heap)[-1]
        order.append(operator)
        waiting.done(operator)
        for other in waiting.get_ready():
            heapq.heappush(heap, (*priority(other, len(order)), other))
    return updates_early(graph, np.array(order, dtype=np.int64))
