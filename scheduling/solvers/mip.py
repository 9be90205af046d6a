"""mip: the fastest schedule of values kept and dropped in the recorded order, as an integer program. For small graphs.

The program is the simulator's definition, line by line (compare Checkmate, Jain et al. 2020, section 4, which lets
any operator run at any time; here one runs again exactly when a recomputation needs it). For values v, operators o
and positions p, all between 0 and 1::

    d[v]           the value is DROPPED; in a step without phases, also d[v,p] of each use: it goes after it. These
                   are the only true variables; all others follow from them
    there[v,p]     it exists before position p
    asked[v,p]     the operator at p reads it, or an operator that runs again before it
    again[o,p]  =  one of what o writes is needed, and does not exist
    there[v,p+1] = (there or written or made again), and not (dropped, and p the last use of its phase or of all; or
                   d[v,p])

    minimise   sum of again[o,p] x seconds[o]
    subject to bytes at every operator, and at every one that runs again, within the budget

Exponential at worst; rows grow with n r^2 for r operators that may run again. Given to HiGHS or CBC through PuLP (the
extra ``mip``). Exact, where the solver finishes; an oracle for tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...packing.milp import DEFAULT_LIMIT, require_pulp, solve_program
from ..graph import Relation, StepGraph
from ..orders import recorded
from ..registry import Answer, NotApplicable, SchedulingOptions, register
from ..schedule import Schedule, Way, as_recorded
from ..simulate import simulator
from ..storages import Storages

MOST_ROWS = 400_000


@register("mip")
def mip(graph: StepGraph, options: SchedulingOptions) -> Answer:
    """Return the optimum within the budget; the recorded schedule where there is none, or none is found in time.

    Raises
    ------
    NotApplicable
        The graph is too large, or operators that may run again write views.
    MissingDependencyError
        PuLP is not installed, or it finds neither HiGHS nor CBC.
    """
    pulp = require_pulp("mip")
    order = recorded(graph)
    if options.budget is None:
        return Answer(Schedule(order, as_recorded(graph).way), optimal=True)
    program = _Program(pulp, graph, order.tolist(), options.budget)
    limit = DEFAULT_LIMIT if options.time_limit is None else options.time_limit
    if not solve_program(program.model, limit, options.threads, warm=False):
        return Answer(Schedule(order, as_recorded(graph).way))
    kept = [s for s, dropped in program.dropped.items() if dropped.varValue < 0.5]
    found = Schedule(order, program.storages.keeping(kept))
    if not graph.has_phases():
        drops: list[list[int]] = [[] for _ in range(graph.values)]
        for (s, p), gone in program.gone.items():
            if gone.varValue > 0.5:
                drops[s].append(int(order[p]))
        found = Schedule(order, found.way, Relation(drops)).with_ways(found.way)
    alone = not options.swap and not any(Way.PACKED in ways for ways in program.storages.ways.values())
    optimal = alone and program.model.sol_status == pulp.LpSolutionOptimal
    return Answer(found, optimal=optimal)


class _Program:
    """The model and its true variables."""

    def __init__(self, pulp: Any, graph: StepGraph, order: Sequence[int], budget: int) -> None:
        self._pulp, self._graph, self._order, self._budget = pulp, graph, order, budget
        self.storages = Storages(graph)
        self._place = {operator: p for p, operator in enumerate(order)}
        self._reads = [sorted(set(row)) for row in graph.reads.rows()]
        self._writes = [sorted(set(row)) for row in graph.writes.rows()]
        # Those of later phases that are not repeatable are never asked for again.
        self._values = [
            s
            for s, writers in self.storages.writers.items()
            if writers and self.storages.droppable(s) and bool(graph.repeatable[writers[0]])
        ]
        self._writer = {v: self.storages.writers[v][0] for v in self._values}
        self._repeats = sorted(set(self._writer.values()))
        if len(order) * len(self._repeats) ** 2 > MOST_ROWS:
            raise NotApplicable(f"mip serves small graphs; {len(order)} operators are too many")
        for operator in self._repeats:
            views = [v for v in self._writes[operator] if self.storages.of[v] != v]
            shared = [v for v in self._writes[operator] if self.storages.of.count(v) > 1]
            if views or shared:
                raise NotApplicable(
                    f"mip knows no views; {graph.label[operator]} (operator {operator}) has some"
                )
        self._size = {s: int(graph.size[s]) for s in self.storages.ways}
        self._find_uses()
        self.model = pulp.LpProblem("schedule", pulp.LpMinimize)
        self.dropped = {v: pulp.LpVariable(f"d{v}", cat="Binary") for v in self._values}
        # One for each use but the last, where the program does not hold the value.
        self.gone: dict[tuple[int, int], Any] = {}
        for s, operators in enumerate([] if graph.has_phases() else graph.users()):
            for p in sorted(self._place[o] for o in operators if s in self.dropped):
                if self._held[s] <= p < self._near[s]:
                    self.gone[s, p] = pulp.LpVariable(f"g{s}_{p}", cat="Binary")
                    self.model += self.gone[s, p] <= self.dropped[s]
        self._count = 0
        self._there: dict[int, list[Any]] = {v: [0] for v in self._values}
        self._again: list[dict[int, Any]] = []
        self._with: list[dict[int, Any]] = []  # of each position: what is there when its operator runs
        for p in range(len(order)):
            self._again.append(self._reruns(p))
            self._advance(p)
        seconds = graph.seconds.tolist()
        self.model += pulp.lpSum(seconds[o] * r for row in self._again for o, r in row.items())
        self._stays = self._lasting()
        for p in range(len(order)):
            self._limit_operator(p)
            for operator in self._again[p]:
                self._limit_rerun(p, operator)

    def _find_uses(self) -> None:
        graph, of, place = self._graph, self.storages.of, self._place
        self._first = {s: min((place[o] for o in w), default=-1) for s, w in self.storages.writers.items()}
        kept = Schedule(np.array(self._order), np.zeros(graph.values, dtype=np.int64))
        self._near, self._last, _ = simulator(graph, kept).intervals().tolist()
        self._held = [-1] * graph.values
        for v in np.flatnonzero(graph.held >= 0).tolist():
            self._held[of[v]] = max(self._held[of[v]], place[int(graph.held[v])])

    def _new(self) -> Any:
        self._count += 1
        return self._pulp.LpVariable(f"x{self._count}", 0, 1)

    def _any(self, terms: list[Any]) -> Any:
        """Return 1 where one of the terms is 1, else 0."""
        if any(_is(t, 1) for t in terms):
            return 1
        terms = [t for t in terms if not isinstance(t, int)]
        if len(terms) < 2:
            return terms[0] if terms else 0
        found = self._new()
        for term in terms:
            self.model += found >= term
        self.model += found <= self._pulp.lpSum(terms)
        return found

    def _and_not(self, one: Any, other: Any) -> Any:
        """Return 1 where the first is 1 and the second 0, else 0."""
        if _is(one, 0) or _is(other, 1):
            return 0
        if isinstance(other, int):
            return one
        found = self._new()
        self.model += found >= one - other
        self.model += found <= one
        self.model += found <= 1 - other
        return found

    def _reruns(self, p: int) -> dict[int, Any]:
        """Return which operators run again before the one at a position."""
        again: dict[int, Any] = {}
        for operator in reversed(self._repeats):
            if self._place[operator] >= p:
                continue
            missing = []
            for v in self._writes[operator]:
                if v not in self._there:
                    continue
                asked = self._any(
                    [int(v in self._reads[self._order[p]])]
                    + [r for o, r in again.items() if v in self._reads[o]]
                )
                missing.append(self._and_not(asked, self._there[v][p]))
            found = self._any(missing)
            if not (isinstance(found, int) and found == 0):
                again[operator] = found
        return again

    def _advance(self, p: int) -> None:
        """Find what exists when the operator at a position runs, and what exists after it."""
        now: dict[int, Any] = {}
        for v in self._values:
            terms = [self._there[v][p], int(v in self._writes[self._order[p]])]
            if self._last[v] >= p and self._writer[v] in self._again[p]:
                terms.append(self._again[p][self._writer[v]])
            now[v] = self._any(terms)
            goes = self.dropped[v] if p == self._near[v] or p >= self._last[v] else self.gone.get((v, p), 0)
            self._there[v].append(self._and_not(now[v], goes))
        self._with.append(now)

    def _lasting(self) -> dict[int, list[Any]]:
        """Return for each storage and position whether a recomputation from there on reads it, where it exists."""
        n = len(self._order)
        stays: dict[int, list[Any]] = {}
        for s in self._first:
            row: list[Any] = [0] * (n + 1)
            for p in range(n - 1, max(self._last[s], -1), -1):
                there = self._there[s][p] if s in self._there else 1
                asks = [
                    r
                    for o, r in self._again[p].items()
                    if any(self.storages.of[v] == s for v in self._reads[o])
                ]
                if not asks and isinstance(row[p + 1], int):
                    continue
                row[p] = self._new()
                self.model += row[p] >= row[p + 1]
                for ask in asks:
                    self.model += row[p] >= ask + there - 1
            stays[s] = row
        return stays

    def _before(self, s: int, p: int) -> Any:
        """Whether a storage is alive when the recomputation before a position begins."""
        if self._graph.resident[s] or not 0 <= self._first[s] < p:
            return 0
        if p > self._last[s]:
            return self._stays[s][p]
        return self._there[s][p] if s in self._there else 1

    def _limit_operator(self, p: int) -> None:
        terms = []
        for s, size in self._size.items():
            if self._graph.resident[s] or not 0 <= self._first[s] <= p:
                continue
            alive = self._stays[s][p] if p > self._last[s] else self._with[p].get(s, 1)
            terms.append(size * alive)
        self._limit(terms, int(self._graph.workspace[self._order[p]]), 1)

    def _limit_rerun(self, p: int, operator: int) -> None:
        again = self._again[p]
        terms = [size * self._before(s, p) for s, size in self._size.items()]
        # What it writes is alive at its end, beside what is there already of that.
        own = sum(self._size[v] for v in self._writes[operator] if not self._graph.resident[v])
        for earlier, ran in again.items():
            if earlier >= operator:
                continue
            for v in self._writes[earlier]:
                if v not in self._there:
                    continue
                made = self._and_not(ran, self._there[v][p])
                if self._last[v] < p:
                    readers = self._any(
                        [r for o, r in again.items() if o >= operator and v in self._reads[o]]
                    )
                    made = self._and_not(made, self._and_not(1, readers)) if not _is(readers, 1) else made
                terms.append(self._size[v] * made)
        self._limit(terms, int(self._graph.workspace[operator]) + own, again[operator])

    def _limit(self, terms: list[Any], more: int, when: Any) -> None:
        """Bytes within the budget, where ``when`` is 1."""
        total = self._pulp.lpSum(terms) + more
        if isinstance(when, int):
            if not self._pulp.lpSum(terms).keys():
                self.model += self._new() * 0 + total.constant <= self._budget
            else:
                self.model += total <= self._budget
            return
        slack = max(0, 2 * sum(self._size.values()) + more - self._budget)
        self.model += total <= self._budget + slack * (1 - when)


def _is(term: Any, value: int) -> bool:
    return isinstance(term, int) and term == value
