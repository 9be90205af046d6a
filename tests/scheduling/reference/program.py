"""The least extra seconds of a made graph's recorded order within a budget: an integer program, an oracle for searches.

For made graphs of one phase alone: operator ``i`` writes value ``i`` and may run again, and no more is said of it. The
program is the simulator's definition, line by line. For values v, operators o, uses and positions p, all 0 or 1::

    d[v]            the value is DROPPED: it goes after its last use; d[v,p]: after this earlier one, too. These alone
                    are chosen; all others follow from them
    there[v,p]      it exists before position p
    again[o,p]   =  the operator at p, or one that runs again before it, reads what o writes, and it is not there
    there[v,p+1] =  (there, or written, or made again) and not (dropped here)

    minimise   sum of again[o,p] x seconds[o]
    subject to bytes at every operator, and at every one that runs again, within the budget
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pulp

from stowplan.scheduling import StepGraph


def optimum(graph: StepGraph, budget: int) -> float | None:
    """Return the least extra seconds; None where no schedule keeps to the budget."""
    program = program_of(graph, budget)
    program.solve(pulp.HiGHS(msg=False, gapRel=0.0, presolve="off"))  # since 1.13 presolve is wrong at times
    if program.sol_status != pulp.LpSolutionOptimal:
        assert program.status == pulp.LpStatusInfeasible
        return None
    return float(round(pulp.value(program.objective)))


def program_of(graph: StepGraph, budget: int) -> Any:
    """Return the integer program, PuLP's."""
    return _Program(graph, budget).model


class _Program:
    def __init__(self, graph: StepGraph, budget: int) -> None:
        n = len(graph)
        assert graph.writes.rows() == [[i] for i in range(n)]
        assert not graph.has_phases()
        assert graph.repeatable.all()
        assert not graph.kept.any()
        self.model, self.variables = pulp.LpProblem("schedule", pulp.LpMinimize), count()
        self.reads = [set(row) for row in graph.reads.rows()]
        self.last = [max(users) for users in graph.users()]
        self.size, self.budget = graph.size.tolist(), budget
        gone: dict[tuple[int, int], Any] = {}
        for v, users in enumerate(graph.users()):
            gone[v, self.last[v]] = self.new("Binary")
            for p in users - {self.last[v]}:
                gone[v, p] = self.new("Binary")
                self.model += gone[v, p] <= gone[v, self.last[v]]
        self.there: list[list[Any]] = [[0] for _ in range(n)]
        self.when_run: list[list[Any]] = []  # by position: what is there when its operator runs
        self.again: list[dict[int, Any]] = []
        for p in range(n):
            again: dict[int, Any] = {}
            for o in reversed(range(p)):
                asks = [int(o in self.reads[p]), *(r for q, r in again.items() if o in self.reads[q])]
                again[o] = self.without(self.any(asks), self.there[o][p])
            self.again.append(again)
            made = {v: again[v] if v in again and self.last[v] >= p else int(v == p) for v in range(n)}
            self.when_run.append([self.any([self.there[v][p], made[v]]) for v in range(n)])
            for v in range(n):
                dropped = gone.get((v, min(p, self.last[v])), 0)
                self.there[v].append(self.without(self.when_run[p][v], dropped))
        self.stays = [self.lasting(v, n) for v in range(n)]
        self.model += pulp.lpSum(float(graph.seconds[o]) * r for row in self.again for o, r in row.items())
        for p in range(n):
            alive = [self.stays[v][p] if p > self.last[v] else self.when_run[p][v] for v in range(p + 1)]
            self.model += self.bytes(alive) <= budget
            for o in range(p):
                self.limit_rerun(p, o)

    def new(self, kind: str = "Continuous") -> Any:
        return pulp.LpVariable(f"x{next(self.variables)}", 0, 1, kind)

    def any(self, terms: list[Any]) -> Any:
        found = self.new()
        for term in terms:
            self.model += found >= term
        self.model += found <= pulp.lpSum(terms)
        return found

    def without(self, one: Any, other: Any) -> Any:
        found = self.new()
        self.model += found >= one - other
        self.model += found <= one
        self.model += found <= 1 - other
        return found

    def bytes(self, alive: list[Any]) -> Any:
        return pulp.lpSum(size * one for size, one in zip(self.size, alive, strict=False))

    def lasting(self, v: int, n: int) -> list[Any]:
        """By position after its last use: whether a recomputation from there on reads it where it exists."""
        row: list[Any] = [0] * (n + 1)
        for p in range(n - 1, self.last[v], -1):
            row[p] = self.new()
            self.model += row[p] >= row[p + 1]
            for o, ran in self.again[p].items():
                if v in self.reads[o]:
                    self.model += row[p] >= ran + self.there[v][p] - 1
        return row

    def limit_rerun(self, p: int, o: int) -> None:
        """What is there before the recomputation, what it has made and still reads, and what the operator writes."""
        again = self.again[p]
        alive = [self.stays[v][p] if p > self.last[v] else self.there[v][p] for v in range(p)]
        made: list[Any] = [0] * p
        for v in range(o):
            made[v] = self.without(again[v], self.there[v][p])
            if self.last[v] < p:
                readers = self.any([r for q, r in again.items() if q >= o and v in self.reads[q]])
                made[v] = self.without(made[v], self.without(1, readers))
        slack = 2 * sum(self.size)
        total = self.bytes(alive) + self.bytes(made) + self.size[o]
        self.model += total <= self.budget + slack * (1 - again[o])
