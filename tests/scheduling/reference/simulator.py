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
    rates = rates or Rates()
    n, m = len(graph), graph.values
    reads = [sorted(set(row)) for row in graph.reads.rows()]
    writes = [sorted(set(row)) for row in graph.writes.rows()]
    order, way = schedule.order.tolist(), schedule.way.tolist()
    storage, size, packed = graph.storage.tolist(), graph.size.tolist(), graph.packed.tolist()
    resident = [bool(graph.resident[s]) for s in storage]
    writers = graph.writers()
    position = {operator: p for p, operator in enumerate(order)}
    end = n  # one past the last position: a value of the results

    # For each storage its uses by operators, by position, the last of them in the phase that wrote it ("near", together
    # with the program's own), and the last of all.
    owned: dict[int, list[int]] = {}
    for v in range(m):
        owned.setdefault(storage[v], []).append(v)
    uses: dict[int, set[int]] = {s: set() for s in owned}
    for p, operator in enumerate(order):
        for v in {*reads[operator], *writes[operator]}:
            uses[storage[v]].add(p)
    near, last = dict.fromkeys(owned, -1), dict.fromkeys(owned, -1)
    drops: dict[int, set[int]] = {}
    for s, values in owned.items():
        first_writers = [writers[v][0] for v in values if writers[v]]
        if first_writers:
            phase = graph.phase[min(first_writers)]
            near[s] = max(p for p in uses[s] if graph.phase[order[p]] == phase)
        for v in values:
            if graph.held[v] >= 0:
                near[s] = max(near[s], position[int(graph.held[v])])
        named = schedule.drops[s] if schedule.drops else []
        held = max((position[int(graph.held[v])] for v in values if graph.held[v] >= 0), default=-1)
        drops[s] = {near[s], *(position[o] for o in named if held <= position[o] < near[s])}
        last[s] = end if graph.kept[values].any() else max([*uses[s], near[s]], default=-1)

    # --- first pass: what is recomputed, and how long each storage is needed ------------------------------------------
    needed = dict(last)
    asked: dict[int, set[int]] = {s: set() for s in owned}  # positions at which a recomputation reads it
    there = [resident[v] or not writers[v] for v in range(m)]
    recomputed: dict[int, list[int]] = {}
    for p, operator in enumerate(order):
        missing = [v for v in reads[operator] if not there[v]]
        if missing:
            again: set[int] = set()
            stack = [writers[v][0] for v in missing]
            while stack:
                one = stack.pop()
                if one in again:
                    continue
                again.add(one)
                for v in reads[one]:
                    if there[v]:
                        needed[storage[v]] = max(needed[storage[v]], p)
                        asked[storage[v]].add(p)
                    else:
                        stack.append(writers[v][0])
            recomputed[p] = sorted(again, key=position.__getitem__)
            for one in again:
                for v in writes[one]:
                    if last[storage[v]] >= p:
                        there[v] = True
        for v in writes[operator]:
            there[v] = True
        for v in range(m):
            s = storage[v]
            if there[v] and not resident[v] and way[v] == Way.DROPPED and (p in drops[s] or p >= last[s]):
                there[v] = False

    # --- second pass: bytes -------------------------------------------------------------------------------------------
    evicted, fetched, stalls = swap_layout(
        graph, schedule, near, {s: uses[s] | asked[s] for s in owned}, rates
    )
    outcome = Outcome(released=[-1] * m, live=[0] * n)
    packing = 0  # bytes packed and unpacked
    present = [False] * m
    small = [False] * m  # packed
    count: Counter[int] = Counter()  # of each storage: values that are there
    live = 0

    def take(v: int) -> None:
        nonlocal live
        if resident[v] or present[v]:
            return
        present[v] = True
        count[storage[v]] += 1
        if count[storage[v]] == 1:
            live += size[storage[v]]

    def drop(v: int, p: int) -> None:
        nonlocal live
        if resident[v] or not present[v]:
            return
        present[v] = False
        if way[v] == Way.DROPPED or p <= needed[storage[v]]:  # else it is a copy
            outcome.released[v] = p
        count[storage[v]] -= 1
        if count[storage[v]] == 0:
            live -= packed[storage[v]] if small[v] else size[storage[v]]
        small[v] = False

    def note(p: int, more: int, rerun: int = -1) -> None:
        outcome.live[p] = max(outcome.live[p], live + more)
        if live + more > outcome.peak:
            outcome.peak, outcome.place, outcome.rerun = live + more, p, rerun

    def unpack(v: int) -> None:
        nonlocal live, packing
        if small[v]:
            small[v] = False
            live += size[v] - packed[v]
            packing += size[v]

    for p, operator in enumerate(order):
        for v in evicted.get(p, ()):
            drop(v, p)
        for v in fetched.get(p, ()):
            take(v)
        again_now = recomputed.get(p, [])
        left = Counter(v for one in again_now for v in reads[one])
        temporary: set[int] = set()
        for one in again_now:
            for v in reads[one]:
                unpack(v)
            copies = sum(size[v] for v in writes[one] if storage[v] == v and present[v] and not resident[v])
            for v in writes[one]:
                if not present[v]:
                    temporary.add(v)
                    take(v)
            note(p, int(graph.workspace[one]) + copies, one)
            outcome.extra_seconds += float(graph.seconds[one])
            for v in reads[one]:
                left[v] -= 1
            for v in [*reads[one], *writes[one]]:
                if v in temporary and left[v] == 0 and last[storage[v]] < p:
                    temporary.discard(v)
                    drop(v, p)
        if again_now:
            outcome.recomputed.append((p, again_now))
        for v in reads[operator]:
            unpack(v)
        for v in writes[operator]:
            take(v)
        note(p, int(graph.workspace[operator]))
        for v in range(m):
            s = storage[v]
            if present[v] and (needed[s] <= p or (p in drops[s] and way[v] == Way.DROPPED)):
                drop(v, p)
            elif present[v] and p == near[s] and way[v] == Way.PACKED:
                small[v] = True
                live -= size[v] - packed[v]
                packing += size[v]
    outcome.extra_seconds += packing / rates.pack + stalls
    return outcome


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
