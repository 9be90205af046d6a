"""Is a schedule valid, and what is its live peak? An answer that shares no code with the simulator or any solver.

`check` interprets the step operator by operator, with what exists in plain sets. It goes through it twice: first to
write down every run, of operators and of reruns, with nothing but DROPPED values ever going; then with all releases,
where it asks of each storage, by looking through the runs to come, whether one will read it. Quadratic and obvious.

What it demands besides the rules of the ways: every operator runs once, after what it depends on; a rerun is of a
repeatable operator and finds what it reads unchanged since the operator itself ran; all that is read exists at that
moment; nothing resident goes; what the program holds, and the results at the end, exist. A value goes after its
last near use, its drops, and its last use.
"""

from __future__ import annotations

from typing import NamedTuple

from ..common.errors import ScheduleError
from .graph import StepGraph
from .schedule import Rates, Schedule, Way


class _Run(NamedTuple):
    position: int
    operator: int
    again: bool


def check(graph: StepGraph, schedule: Schedule, rates: Rates | None = None) -> int:
    """Raise unless the schedule is valid; else return its live peak in bytes, without the resident storages.

    Raises
    ------
    ScheduleError
        Naming the first operator or value that breaks a rule, and the rule.
    """
    checker = _Checker(graph, schedule, rates or Rates())
    checker.check_order()
    checker.check_ways()
    checker.find_uses()
    checker.write_down_runs()
    return checker.interpret()


class _Checker:
    def __init__(self, graph: StepGraph, schedule: Schedule, rates: Rates) -> None:
        self.graph, self.rates = graph, rates
        self.n, self.m = len(graph), graph.values
        self.order = [int(i) for i in schedule.order]
        self.way = [int(w) for w in schedule.way]
        self.reads = [set(row) for row in graph.reads.rows()]
        self.writes = [set(row) for row in graph.writes.rows()]
        self.of = [int(s) for s in graph.storage]
        self.resident = [bool(graph.resident[s]) for s in self.of]
        self.named = [set(row) for row in schedule.drops.rows()] if schedule.drops else [set()] * self.m
        self.runs: list[_Run] = []
        self.operator, self.value = graph.operator_text, graph.value_text

    # --- rules that need no interpretation ---------------------------------------------------------------------------

    def check_order(self) -> None:
        for i in self.order:
            if not 0 <= i < self.n:
                raise ScheduleError(f"the order has operator {i}; there are {self.n}")
        for i in range(self.n):
            if self.order.count(i) != 1:
                raise ScheduleError(f"{self.operator(i)} runs {self.order.count(i)} times; expected once")
        for position, i in enumerate(self.order):
            to_come = self.order[position + 1 :]
            for j in to_come:
                if j in self.graph.after[i] or (j < i and self.writes[j] & self.reads[i]):
                    raise ScheduleError(
                        f"{self.operator(i)} runs before {self.operator(j)}, which it depends on"
                    )

    def check_ways(self) -> None:
        if len(self.way) != self.m:
            raise ScheduleError(f"{len(self.way)} ways; expected one for each of {self.m} values")
        for v in range(self.m):
            way, together = self.way[v], [w for w in range(self.m) if self.of[w] == self.of[v]]
            if way not in tuple(Way):
                raise ScheduleError(f"{self.value(v)} has the way {way}; expected {min(Way)} to {max(Way)}")
            if way != self.way[self.of[v]]:
                raise ScheduleError(f"{self.value(v)} shares a storage and not its way")
            if way == Way.KEPT:
                continue
            if self.resident[v]:
                raise ScheduleError(f"{self.value(v)} is resident; expected KEPT, not {Way(way).name}")
            if any(self.graph.kept[w] for w in together):
                raise ScheduleError(
                    f"{self.value(v)} is among the results; expected KEPT, not {Way(way).name}"
                )
            if any(sum(w in row for row in self.writes) != 1 for w in together):
                raise ScheduleError(f"{self.value(v)} has not one writer; expected KEPT, not {Way(way).name}")
            if way in (Way.PACKED, Way.SWAPPED, Way.ON_DEMAND) and len(together) > 1:
                raise ScheduleError(f"{self.value(v)} shares its storage; it cannot be {Way(way).name}")
        if len(self.named) != self.m:
            raise ScheduleError(f"{len(self.named)} rows of drops; expected one for each of {self.m} values")
        for v, named in enumerate(self.named):
            using = {i for i in range(self.n) if v in {self.of[w] for w in self.reads[i] | self.writes[i]}}
            if named and (len(set(self.graph.phase.tolist())) > 1 or self.way[v] != Way.DROPPED):
                raise ScheduleError(f"{self.value(v)} has drops; expected none, with phases or not DROPPED")
            if not named <= using:
                raise ScheduleError(f"{self.value(v)} is dropped after {named}, which do not all use it")

    # --- lifetimes by looking through all operators ------------------------------------------------------------------

    def find_uses(self) -> None:
        """Find each storage's uses, and the last near one, in the phase that wrote it or by the program."""
        storages = sorted(set(self.of))
        self.uses: dict[int, list[int]] = {storage: [] for storage in storages}
        for position, i in enumerate(self.order):
            for storage in {self.of[v] for v in self.reads[i] | self.writes[i]}:
                self.uses[storage].append(position)
        self.near = dict.fromkeys(storages, -1)
        for storage in storages:
            makers = [i for i in range(self.n) if any(self.of[v] == storage for v in self.writes[i])]
            for position in self.uses[storage]:
                if makers and self.graph.phase[self.order[position]] == self.graph.phase[makers[0]]:
                    self.near[storage] = position
        for v in range(self.m):
            if self.graph.held[v] >= 0:
                position = self.order.index(int(self.graph.held[v]))
                self.near[self.of[v]] = max(self.near[self.of[v]], position)
        self.drops = {storage: {self.near[storage]} for storage in storages}
        for storage in storages:
            together = [v for v in range(self.m) if self.of[v] == storage and self.graph.held[v] >= 0]
            held = max((self.order.index(int(self.graph.held[v])) for v in together), default=-1)
            named = {self.order.index(i) for i in self.named[storage]}
            self.drops[storage] |= {p for p in named if held <= p < self.near[storage]}
        self.results = {self.of[v] for v in range(self.m) if self.graph.kept[v]}

    def used_after(self, storage: int, position: int) -> bool:
        """Whether an operator itself, or the program, uses a storage after a position."""
        later = [p for p in (*self.uses[storage], self.near[storage]) if p > position]
        return storage in self.results or bool(later)

    # --- first time through: which operators run again ---------------------------------------------------------------

    def write_down_runs(self) -> None:
        there = {v for v in range(self.m) if self.resident[v]}
        stamp = [-1] * self.m  # of each storage the run that changed it last: that wrote a value again
        before = {v for v in range(self.m) if self.graph.resident[v]}
        own = [-1] * self.n  # of each operator its own run
        for position, i in enumerate(self.order):
            missing: set[int] = set()
            for v in sorted(self.reads[i] - there):
                self.miss(v, there, missing, i)
            for j in sorted(missing, key=self.order.index):
                if not self.graph.repeatable[j]:
                    raise ScheduleError(
                        f"{self.operator(j)} runs again for {self.operator(i)}; it is not repeatable"
                    )
                changed = [v for v in sorted(self.reads[j] & there) if stamp[self.of[v]] > own[j]]
                if changed:
                    raise ScheduleError(
                        f"{self.operator(j)} runs again for {self.operator(i)}; {self.value(changed[0])}, which it "
                        "reads, has been written since it ran"
                    )
                self.runs.append(_Run(position, j, True))
            for j in missing:
                there |= {v for v in self.writes[j] if self.used_after(self.of[v], position - 1)}
            own[i] = len(self.runs)
            for v in self.writes[i] & before:
                stamp[self.of[v]] = len(self.runs)
            before |= self.writes[i]
            self.runs.append(_Run(position, i, False))
            there |= self.writes[i]
            for v in list(there):
                dropped = self.way[v] == Way.DROPPED
                goes = position in self.drops[self.of[v]] or not self.used_after(self.of[v], position)
                if dropped and goes:
                    there.remove(v)

    def miss(self, v: int, there: set[int], missing: set[int], reader: int) -> None:
        """Add the operators to run for a value that is not there."""
        makers = [j for j in range(self.n) if v in self.writes[j]]
        if not makers or self.way[v] != Way.DROPPED:
            raise ScheduleError(f"{self.operator(reader)} reads {self.value(v)}, which is not there")
        todo = [makers[0]]
        while todo:
            j = todo.pop()
            if j not in missing:
                missing.add(j)
                for w in self.reads[j] - there:
                    todo += [k for k in range(self.n) if w in self.writes[k]]

    # --- second time through: bytes ----------------------------------------------------------------------------------

    def interpret(self) -> int:
        # Runs, of reruns that read a storage.
        self.reread: dict[int, list[int]] = {storage: [] for storage in self.uses}
        for k, run in enumerate(self.runs):
            for storage in {self.of[v] for v in self.reads[run.operator] if run.again}:
                self.reread[storage].append(k)
        out, into = self.transfers()
        there: set[int] = set()
        small: set[int] = set()
        peak = 0
        position = -1
        for k, run in enumerate(self.runs):
            if run.position > position:
                position = run.position
                there -= {v for v in out if out[v] == position}
                there |= {v for v in into if into[v] == position}
                self.before = set(there)
            reads, writes = self.reads[run.operator], self.writes[run.operator]
            gone = [v for v in sorted(reads) if v not in there and not self.resident[v]]
            if gone:
                raise ScheduleError(
                    f"{self.operator(run.operator)} reads {self.value(gone[0])}, which is not there"
                )
            small -= reads
            copies = [v for v in writes & there if run.again and self.of[v] == v and not self.resident[v]]
            there |= {v for v in writes if not self.resident[v]}
            extra = sum(int(self.graph.size[v]) for v in copies) + int(self.graph.workspace[run.operator])
            peak = max(peak, self.bytes(there, small) + extra)
            self.release(k, there, small)
            self.require_held(run, there)
        results = {v for v in range(self.m) if self.graph.kept[v] and any(v in row for row in self.writes)}
        for v in sorted(results - there):
            if not self.resident[v]:
                raise ScheduleError(f"{self.value(v)} is among the results; it is not there at the end")
        return peak

    def bytes(self, there: set[int], small: set[int]) -> int:
        total = 0
        for storage in {self.of[v] for v in there}:
            total += int(self.graph.packed[storage] if storage in small else self.graph.size[storage])
        return total

    def release(self, k: int, there: set[int], small: set[int]) -> None:
        """After run k take away the values without later readers."""
        run = self.runs[k]
        if run.again:
            gone = {
                v for v in self.reads[run.operator] | self.writes[run.operator] if self.is_temporary(v, k)
            }
        else:
            gone = {v for v in there if not self.stays(v, k)}
        there -= gone
        small -= gone
        if not run.again:
            small |= {v for v in there if self.way[v] == Way.PACKED and self.near[v] == run.position}

    def stays(self, v: int, k: int) -> bool:
        """Whether a value stays after run k, an operator's own."""
        storage, position = self.of[v], self.runs[k].position
        if self.way[v] == Way.DROPPED:
            return self.used_after(storage, position) and position not in self.drops[storage]
        return self.used_after(storage, position) or any(later > k for later in self.reread[storage])

    def is_temporary(self, v: int, k: int) -> bool:
        """Whether a value goes after run k, a rerun: made for the reruns here, whose last reader this was."""
        position = self.runs[k].position
        if v in self.before or self.resident[v] or self.used_after(self.of[v], position - 1):
            return False
        to_come = [r for r in self.runs[k + 1 :] if r.position == position and r.again]
        return not any(v in self.reads[r.operator] for r in to_come)

    def require_held(self, run: _Run, there: set[int]) -> None:
        if run.again:
            return
        for v in (v for v in range(self.m) if self.graph.held[v] >= 0 and not self.resident[v]):
            held = int(self.graph.held[v])
            made = [self.order.index(i) for i in range(self.n) if v in self.writes[i]]
            if made and min(made) <= run.position < self.order.index(held) and v not in there:
                raise ScheduleError(
                    f"{self.value(v)} goes after {self.operator(run.operator)}; the program holds it up to "
                    f"{self.operator(held)}"
                )

    def transfers(self) -> tuple[dict[int, int], dict[int, int]]:
        """For each value that is evicted the position before which it leaves, and comes back."""
        clock = [0.0]
        for i in self.order:
            clock.append(clock[-1] + float(self.graph.seconds[i]))
        leaves: list[tuple[int, int]] = []
        back: dict[int, int] = {}
        for v in (v for v in range(self.m) if self.way[v] in (Way.SWAPPED, Way.ON_DEMAND)):
            near = self.near[v]
            asked = [self.runs[k].position for k in self.reread[v]]
            needs = [p for p in (*self.uses[v], *asked) if p > near]
            if needs:
                leaves.append((near, v))
                back[v] = min(needs)
        gone, here, busy = {}, {}, 0.0
        for near, v in sorted(leaves):
            if self.way[v] == Way.ON_DEMAND:
                gone[v], here[v], busy = near + 1, back[v], clock[near + 1]
                continue
            busy = max(busy, clock[near + 1]) + int(self.graph.size[v]) / self.rates.swap
            late = [p for p in range(near + 1, self.n) if clock[p] >= busy]
            gone[v] = late[0] if late else self.n
        busy = float("inf")
        for v in sorted((v for v in back if self.way[v] == Way.SWAPPED), key=lambda v: (-back[v], v)):
            busy = min(busy, clock[back[v]]) - int(self.graph.size[v]) / self.rates.swap
            early = [p for p in range(back[v] + 1) if clock[p] <= busy]
            here[v] = early[-1] if early else 0
        stay = {v for v in gone if gone[v] >= here[v]}
        return {v: p for v, p in gone.items() if v not in stay}, {
            v: p for v, p in here.items() if v not in stay
        }
