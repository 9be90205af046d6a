"""What may not run again where a schedule has it run again: an operator whose inputs have been written since it ran.

::

    conv  reads W ... sgd writes W ... conv again        W is another one: the result is another one
    conv  reads h ... relu_ writes h ... conv again      the same, in place; and if conv reads a view of h

In a step as frameworks record them an update comes after all that read its parameter, and recomputations come before
that. Where a graph has it otherwise, the values that would be made from other inputs have to be kept.
"""

from __future__ import annotations

import numpy as np

from .graph import IntArray, StepGraph
from .schedule import Schedule, Way
from .simulate import simulate


def hazards(graph: StepGraph, schedule: Schedule) -> set[int]:
    """Return the storages that the schedule has made again from inputs that have changed. O(reruns x reads)."""
    outcome = simulate(graph, schedule)
    if not outcome.recomputed:
        return set()
    place = np.argsort(schedule.order)
    changes = _changes(graph, place)
    found: set[int] = set()
    for position, operators in outcome.recomputed:
        for operator in operators:
            since = int(place[operator])
            read = (int(graph.storage[v]) for v in graph.reads[operator])
            if any(since < p < position for s in read for p in changes.get(s, ())):
                found.update(int(graph.storage[v]) for v in graph.writes[operator])
    return found


def _changes(graph: StepGraph, place: IntArray) -> dict[int, list[int]]:
    """Return for each storage where it changes: where one of its values is written, but for the first time that it is.

    Which of several writers comes first is the schedule's choice.
    """
    found: dict[int, list[int]] = {}
    for value, writers in enumerate(graph.writers()):
        written = sorted(place[writers].tolist())
        changing = written if graph.resident[value] else written[1:]
        if changing:
            found.setdefault(int(graph.storage[value]), []).extend(changing)
    return found


def without_hazards(graph: StepGraph, schedule: Schedule) -> Schedule:
    """Return the schedule with all KEPT that `unsafe_recomputation` names, and what it names then, and so on."""
    while True:
        found = hazards(graph, schedule)
        if not found:
            return schedule
        way = schedule.way.copy()
        way[np.isin(graph.storage, list(found))] = Way.KEPT
        if (way == schedule.way).all():
            way[:] = Way.KEPT
        schedule = schedule.with_ways(way)
