"""greedy: descend to the budget by simulation, from several starting points; then search locally.

Starting points are orders of the backward pass (`stowplan.scheduling.orders`) and the caller's schedules (incumbents).
From each a descent goes down until the budget is kept (``core/descent/descent.hpp``: Minoux's lazy greedy over the
bytes above the budget for each second); the best goes on into local search by ruin and rebuild
(``core/descent/rebuild.hpp``).

Without phases local search begins several times on small graphs, and a descent that gets stuck is tried in steps of a
fiftieth, with local search; under a time limit again, each time with twice as much of it, until the time is over. Where
no descent keeps to the budget, the least peak is looked for by bisection: each step descends to a budget between the
highest that was missed and the lowest that was reached; without phases on small graphs local search then goes below
what was found, as long as it can. If that is above the budget, equal seconds take the place of
those measured, which differ from run to run, and the search is repeated (without phases on small graphs alone).

An evaluation of the simulator takes some ten microseconds for a thousand operators; a descent some evaluations for each
storage; local search 4,000 to 40,000, the fewer the larger the graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._simulator import descend
from ..bounds import bound_schedules
from ..checkpoint_segments import segments
from ..graph import IntArray, Phase, Relation, StepGraph
from ..orders import recorded, starting_points
from ..registry import Answer, SchedulingOptions, register
from ..schedule import Schedule, Way, as_recorded
from ..simulate import simulator
from ..storage_groups import Storages
from ..unsafe_recomputation import hazards, without_hazards

# The bit of a storage that may go after any use.
ANYWHERE = 128

# Evaluations of local search: so many by operators, within these limits.
WORK, LEAST_EFFORT, MOST_EFFORT = 16_000_000, 4_000, 40_000

# Bisection for the least peak ends when it is known to this share, or after so many steps.
PRECISION, STEPS = 0.004, 9

# The search for the least peak ends when so many evaluations, times operators, have been made.
MOST_WORK = 160_000_000

# Segments that the search for the least peak begins with are at most so many times the root of the operators.
MOST_SEGMENTS = 4

# How often values that may not be made again are found and forbidden, and the search repeated.
REPAIRS = 4

# Without phases and with more operators the least peak is looked for in steps downwards alone.
SMALL = 200

# Without phases and with no more operators, local search begins so often, each time with other random numbers.
RESTARTS = 8

# With so many operators or fewer every order is tried by a descent of its own; with more, the one that a coarse descent
# finds to be the best.
FEW = 1_500


class Found(NamedTuple):
    """A schedule and what it costs."""

    schedule: Schedule
    peak: int
    seconds: float


def rank(budget: int) -> Callable[[Found], tuple[int, float]]:
    """Order schedules: first those above the budget by their peaks, within it by seconds."""
    return lambda found: (max(found.peak, budget), found.seconds)


@register("greedy")
def greedy(graph: StepGraph, options: SchedulingOptions) -> Schedule | Answer:
    """Return the fastest schedule found that keeps to the budget, else the one with the smallest peak."""
    search = _Search(graph, options)
    budget = options.budget if options.budget is not None else search.at(as_recorded(graph)).peak
    best, reached = _best(search, budget), False
    for _ in range(REPAIRS):
        unsafe = hazards(graph, best.schedule)
        if not unsafe or search.over():
            break
        reached |= best.peak <= budget
        search.forbid(unsafe)
        best = _best(search, budget)
    best = search.at(without_hazards(graph, best.schedule))
    if reached and best.peak > budget and not search.over():
        # What was forbidden depended on the budget. This does not: a caller that asks for the least peak gets it.
        return greedy(graph, replace(options, budget=0, time_limit=search.left()))
    return Answer(best.schedule, interrupted=search.interrupted)


def _best(search: _Search, budget: int) -> Found:
    """Return the best that is found within a budget, else the one with the smallest peak."""
    found = (_with_phases if search.graph.has_phases() else _without_phases)(search, budget)
    if search.is_done(found, budget) or found.peak > budget:
        return found
    return search.improved(found, budget, search.effort)


def _with_phases(search: _Search, budget: int) -> Found:
    """Descend from every start, or else to the least peak."""
    best = search.descended(search.starts(budget, search.options.incumbents), budget)
    is_found = best.peak <= budget or search.over()
    return best if is_found else search.lowest(_least_by_any_seconds(search, budget), best, budget)


def _without_phases(search: _Search, budget: int) -> Found:
    """Descend in small steps first; in a large graph in these alone, as a descent in one step gets stuck earlier."""
    starts = search.starts(budget, search.options.incumbents)
    starts = [_stepwise(search, starts[0], budget, search.effort // 2), *starts]
    best, small = min(starts, key=rank(budget)), len(search.graph) <= SMALL
    if small or best.peak <= budget:
        best = search.descended(starts, budget)
    if best.peak > budget and not search.over():
        effort = search.effort
        lowest = (
            _least_by_any_seconds(search, budget)
            if small
            else _stepwise(search, search.starts(0, ())[0], 0, effort)
        )
        while small and not search.over():
            lower = search.improved(lowest, lowest.peak - 1, search.effort)
            if lower.peak >= lowest.peak:
                break
            lowest = lower
        best = search.lowest(lowest, best, budget)
        while not small and search.left() and not search.over() and best.peak > max(budget, search.floor):
            effort *= 2
            best = _stepwise(search, best, budget, effort)
    for seed in range(1, RESTARTS if small and best.peak <= budget else 0):
        if search.is_done(best, budget):
            break
        tried = search.improved(starts[seed % len(starts)], budget, search.effort, seed=seed)
        best = min(best, tried, key=rank(budget))
    return best


def _stepwise(search: _Search, found: Found, budget: int, effort: int) -> Found:
    """Go down in small steps, each from the one before: what goes first leaves what it is made from."""
    level = found.peak
    while budget < level and found.peak <= level and not search.over():
        level = max(budget, level * 49 // 50)
        found = search.improved(found, level, 0)
        if found.peak > level:
            found = search.improved(found, level, effort)
    return found


def _least(search: _Search) -> Found:
    """Look for the smallest peak of all.

    First downwards from the highest start in steps of a fifth, with those that still reach each level; then by
    bisection between the last level reached and the first one missed, with what reached the last.
    """
    storages = Storages(search.graph)
    floor = max(0, search.floor - 1)
    search.work = 0
    order, nothing = recorded(search.graph), storages.keeping(())
    cut = min((search.at(Schedule(order, way)) for way in (nothing, *_segments(storages))), key=rank(0))
    starts = search.starts(floor, (Schedule(order, nothing), cut.schedule))
    best = min(cut, *starts, key=rank(0))
    missed, level = floor, max(start.peak for start in starts)
    while level - missed > PRECISION * level and not search.is_tired():
        level = max(floor, level * 4 // 5)
        reached = [search.improved(start, level, 0) for start in starts if not search.is_tired()]
        best = min(best, *reached, key=rank(0))
        passing = [start for start, found in zip(starts, reached, strict=False) if found.peak <= level]
        if not passing:
            missed = level
            break
        starts = passing
    # A miss proves nothing: the second time, more is tried.
    best = _bisected(search, best, missed, starts[:2], LEAST_EFFORT // 4)
    return _bisected(search, best, max(floor, best.peak * 9 // 10), starts[:3], LEAST_EFFORT // 2)


def _least_by_any_seconds(search: _Search, budget: int) -> Found:
    """Look for the smallest peak of all; where it is above the budget, once more as if each operator took equally long.

    A descent weighs bytes against seconds. These are measured, so what it finds may differ from run to run; what it
    finds by equal ones does not. Neither is always lower.
    """
    found = _least(search)
    if found.peak <= budget or search.over() or np.ptp(search.graph.seconds) == 0:
        return found
    left, hear = search.left(), search.options.report
    options = replace(
        search.options,
        time_limit=None if left is None else left / 2,
        report=None if hear is None else lambda peak, _: hear(min(peak, found.peak), found.seconds),
    )
    equal = _Search(search.graph.with_seconds(np.ones(len(search.graph))), options)
    equal.ways = search.ways
    lowest = _least(equal)
    lowest = equal.improved(lowest, lowest.peak, equal.effort)
    search.interrupted |= equal.interrupted
    search.stopped |= equal.stopped
    return min(found, search.at(lowest.schedule), key=rank(0))


def _segments(storages: Storages) -> Iterator[IntArray]:
    """Yield the ways of 2 segments and more, in growing steps, up to a few times the root of all operators."""
    count, most = 2, MOST_SEGMENTS * math.isqrt(len(storages.graph))
    while count < most and storages.forward():
        yield segments(storages, count)
        count += max(1, count // 6)


def _bisected(search: _Search, best: Found, missed: int, starts: list[Found], effort: int) -> Found:
    for _ in range(STEPS):
        if search.is_tired() or best.peak - missed <= PRECISION * best.peak:
            break
        target = (best.peak + missed) // 2
        for start in (best, *starts):
            best = min(best, search.improved(start, target, effort), key=rank(0))
            if best.peak <= target or search.is_tired():
                break
        if best.peak > target:
            missed = target
    return best


class _Search:
    """One call: the graph's columns for the core, and what is left of the time."""

    def __init__(self, graph: StepGraph, options: SchedulingOptions) -> None:
        self.graph, self.options = graph, options
        self.interrupted = self.stopped = False
        self.work = 0  # evaluations x operators
        limit = options.time_limit
        self._deadline = None if limit is None else time.monotonic() + limit
        storages = Storages(graph)
        self.ways = np.zeros(graph.values, dtype=np.uint8)
        for storage, ways in storages.ways.items():
            for way in ways:
                if way < Way.SWAPPED or options.swap:
                    self.ways[storage] |= 1 << int(way)
                    if way == Way.DROPPED and not graph.has_phases():
                        self.ways[storage] |= ANYWHERE
        self._groups = _groups(storages)
        self._after, self._before = graph.dependants(), graph.dependencies().rows()
        moves = graph.phase == Phase.BACKWARD if graph.has_phases() else np.ones(len(graph), dtype=bool)
        self._movable: Sequence[int] = np.flatnonzero(moves).tolist() if options.reorder else []
        self.floor = bound_schedules(graph)
        self.effort = max(LEAST_EFFORT, min(MOST_EFFORT, WORK // max(1, len(graph))))
        self._orders = starting_points(graph) if options.reorder else [recorded(graph)]

    def at(self, schedule: Schedule) -> Found:
        """Simulate a schedule, with all KEPT that is in no way that is allowed."""
        allowed = (self.ways[self.graph.storage] >> schedule.way & 1).astype(bool)
        if not allowed.all():
            schedule = schedule.with_ways(np.where(allowed, schedule.way, int(Way.KEPT)))
        peak, _, _, seconds = simulator(self.graph, schedule, self.options.rates).evaluate()
        return Found(schedule, peak, seconds)

    def over(self) -> bool:
        """Whether the caller wants no more."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return late or self.interrupted or self.stopped

    def left(self) -> float | None:
        """Seconds that the caller leaves; None: no end."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def forbid(self, storages: set[int]) -> None:
        """Let these be dropped no longer."""
        self.ways[list(storages)] &= 0xFF ^ (ANYWHERE | 1 << int(Way.DROPPED))

    def is_done(self, found: Found, budget: int) -> bool:
        """Whether nothing better is wanted, or there is nothing better."""
        return self.over() or (found.peak <= budget and found.seconds == 0)

    def is_tired(self) -> bool:
        """Whether the search for the least peak has taken all the work that it may."""
        return self.over() or self.work > MOST_WORK

    def descended(self, starts: Sequence[Found], budget: int) -> Found:
        """Descend from each start in turn; return the best of all."""
        best = min(starts, key=rank(budget))
        for start in starts:
            if self.is_done(best, budget):
                break
            best = min(best, self.improved(start, budget, 0), key=rank(budget))
            if best.peak > budget and self.work > MOST_WORK // 4:
                break
        return best

    def lowest(self, found: Found, best: Found, budget: int) -> Found:
        """Improve the least peak found. No budget changes it, so a later search for the least finds the same."""
        found = self.improved(found, found.peak, self.effort)
        return min(found, best, key=rank(budget)) if self.over() else found

    def improved(self, start: Found, budget: int, effort: int, coarse: bool = False, seed: int = 0) -> Found:
        """Descend from a schedule; return the better of both."""
        options = self.options
        drops = start.schedule.drops
        order, way, goes_after, evaluations, interrupted = descend(
            self.graph,
            start.schedule.order,
            start.schedule.way,
            self.ways,
            budget,
            options.rates,
            drops=None if drops is None else drops.rows(),
            groups=self._groups,
            before=self._before,
            after=self._after,
            movable=self._movable,
            effort=effort,
            seed=seed,
            coarse=coarse,
            time_limit=self.left(),
            progress=None if options.report is None else self._report,
        )
        self.interrupted |= interrupted
        self.work += evaluations * len(self.graph)
        found = Schedule(order, way, None if self.graph.has_phases() else Relation(goes_after))
        return min(self.at(found), start, key=rank(budget))

    def _report(self, peak: int, lower_bound: int, seconds: float) -> bool:
        assert self.options.report is not None
        self.stopped |= not self.options.report(peak, seconds)
        return not self.stopped

    def starts(self, budget: int, incumbents: tuple[Schedule, ...]) -> list[Found]:
        """Return the schedules to descend from: the most promising order first."""
        graph, options = self.graph, self.options
        orders = self._orders
        # Without phases what is dropped is best made again from what is kept.
        way = as_recorded(graph).way if graph.has_phases() else np.zeros(graph.values, dtype=np.int64)
        plain = [self.at(Schedule(order, way)) for order in orders]
        coarse = [self.improved(start, budget, 0, coarse=True) for start in plain]
        ranked = sorted(range(len(orders)), key=lambda k: rank(budget)(coarse[k]))
        if len(graph) > FEW:
            ranked = ranked[:1]
        best = orders[ranked[0]]
        starts = [plain[k] for k in ranked] + [coarse[ranked[0]]]
        seen = {_choice(start.schedule) for start in starts}
        for incumbent in incumbents:
            own = [replace(incumbent, order=best)] if options.reorder else []
            if _choice(incumbent) not in seen:
                starts += [self.at(one) for one in (*own, incumbent)][: 1 if len(graph) > FEW else 2]
                seen.add(_choice(incumbent))
        return starts


def _choice(schedule: Schedule) -> tuple[bytes, bytes]:
    """Return what is kept and dropped, to compare."""
    drops = schedule.drops
    return schedule.way.tobytes(), b"" if drops is None else drops.first.tobytes() + drops.index.tobytes()


def _groups(storages: Storages) -> list[list[int]]:
    """Return the storages that operators of one label write, where they are several."""
    by_label: dict[str, list[int]] = {}
    for s in storages.forward():
        by_label.setdefault(storages.graph.label[storages.writers[s][0]], []).append(s)
    return [group for group in by_label.values() if len(group) > 1]
