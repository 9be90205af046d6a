"""The schedule: what happens in a step and when. It lowers the live peak; packing then places what is left.

The operators run in the schedule's order, and every value is in one of five ways:

========= ==============================================================================================================
way       after a use, to the next one
========= ==============================================================================================================
KEPT      it stays, as long as an operator, or a recomputation, will read it. A value that neither will goes at once
DROPPED   it goes, and is recomputed when an operator reads it
PACKED    it stays in fewer bytes (a mask of dropout in a bit for each element), and is unpacked at its next use
SWAPPED   it is evicted to a file or to the host's memory, and fetched ahead of its next use; it stays where there is
          no time for both
ON_DEMAND it is evicted at once and fetched when it is needed; the step waits for both
========= ==============================================================================================================

*Where.* In a step with phases, as a framework runs it, this is after the last use in the phase that wrote the value:
the program itself runs the forward operators. In a step without phases (all operators are of one) a DROPPED value goes
after any of its uses that the schedule names, its ``drops``, and may go and be made again several times::

    a > b > c > d         a is read by b and by d; it is dropped after b
    a   a   .   a again, for d

Recomputation. An operator finds a value that it reads gone. The value's writer runs again, and before it, in the order
of the schedule, the writers of whatever these read and find gone in turn. Of what they write, a value stays that an
operator still to come reads, to its next drop; one that only this recomputation reads goes when its last reader in it
has run; what exists already is not replaced, though its copy is alive for a moment.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from ..common.errors import FormatError, ScheduleError
from ..common.files import atomic_write
from .graph import IntArray, Phase, Relation, StepGraph

FORMAT, VERSION = "stowplan schedule", 1


class Way(IntEnum):
    """What becomes of a value between a use and the next one."""

    KEPT = 0
    DROPPED = 1
    PACKED = 2
    SWAPPED = 3
    ON_DEMAND = 4


@dataclass(frozen=True)
class Rates:
    """Bytes a second of what a schedule does besides running operators.

    Attributes
    ----------
    swap
        To where values are evicted, and back. One transfer at a time.
    pack
        Packing a value, and unpacking it.
    """

    swap: float = 0.8 * 2**30
    pack: float = 1.0 * 2**30


@dataclass(frozen=True, eq=False)
class Schedule:
    """An order of operators and a way for every value; values that share a storage have one way.

    Attributes
    ----------
    order
        Numbers of the operators, int64 (n,), in the order in which they run.
    way
        ``Way`` of each value, int64 (m,).
    drops
        In a step without phases: of each DROPPED value that has a storage, the operators that use it and after which
        it goes, besides the last; m rows. None: none.
    """

    order: IntArray
    way: IntArray
    drops: Relation | None = None

    def with_ways(self, way: IntArray) -> Schedule:
        """Return it with other ways; what is not DROPPED has no drops."""
        if self.drops is None:
            return Schedule(self.order, way)
        rows = zip(self.drops.rows(), way.tolist(), strict=True)
        return Schedule(self.order, way, Relation(row if w == Way.DROPPED else () for row, w in rows))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, with a checksum.

        Raises
        ------
        OSError
            The file cannot be written. The old one, if any, is untouched.
        """
        data: dict[str, Any] = {"format": FORMAT, "version": VERSION}
        data |= {"order": self.order.tolist(), "way": self.way.tolist()}
        if self.drops is not None:
            data["drops"] = self.drops.rows()
        data["checksum"] = _checksum(data)
        with atomic_write(path) as file:
            file.write(json.dumps(data).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str], graph: StepGraph) -> Schedule:
        """Read what `save` wrote, for this graph. A file without a checksum, as earlier ones are, is read unchecked.

        Raises
        ------
        FormatError
            The file is truncated, changed or foreign, or of another version or graph.
        OSError
            The file cannot be opened.
        """
        with open(path, "rb") as file:
            text = file.read()
        try:
            data: dict[str, Any] = json.loads(text)
            found = data["format"], data["version"]
            if found != (FORMAT, VERSION):
                raise FormatError(path, f"{found[0]!r}, version {found[1]!r}; expected {FORMAT!r}, {VERSION}")
            if data.pop("checksum", None) not in (None, _checksum(data)):
                raise FormatError(
                    path, "its content is not what its checksum is of; expected it as it was written"
                )
            schedule = cls(
                np.array(data["order"], dtype=np.int64),
                np.array(data["way"], dtype=np.int64),
                Relation(data["drops"]) if "drops" in data else None,
            )
        except FormatError:
            raise
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise FormatError(path, f"not a {FORMAT} file, or a truncated one ({error})") from None
        try:
            require_valid(graph, schedule)
        except ScheduleError as error:
            raise FormatError(path, str(error)) from None
        return schedule


def _checksum(data: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())


def as_recorded(graph: StepGraph) -> Schedule:
    """Return the schedule that runs the operators as they were recorded and keeps what is read later.

    What no operator of a later phase reads is DROPPED, not KEPT: a recomputation that misses it makes it again rather
    than having had it kept. Solvers begin here.
    """
    return Schedule(np.arange(len(graph), dtype=np.int64), _ways(graph))


def lean(graph: StepGraph) -> Schedule:
    """Return the schedule that costs no time: as recorded, but each update as soon as all that it comes after has run.

    A schedule does not choose that every value goes at its last use: a step graph determines it.
    """
    return Schedule(updates_early(graph, np.arange(len(graph), dtype=np.int64)), _ways(graph))


def updates_early(graph: StepGraph, order: IntArray) -> IntArray:
    """Return an order with each update moved to where all that it depends on has just run; else unchanged, (n,)."""
    dependencies = graph.dependencies().rows()
    updates = [i for i in order.tolist() if graph.phase[i] == Phase.UPDATE]
    moved = set(updates)
    # Updates that depend on updates wait for these; numbers grow along dependencies.
    ready: dict[int, list[int]] = {}
    at = {operator: place for place, operator in enumerate(i for i in order.tolist() if i not in moved)}
    for update in sorted(updates):
        place = max((at[j] for j in dependencies[update]), default=-1)
        at[update] = place
        ready.setdefault(place, []).append(update)
    early = list(ready.get(-1, []))
    for place, operator in enumerate(i for i in order.tolist() if i not in moved):
        early.append(operator)
        early.extend(ready.get(place, []))
    return np.array(early, dtype=np.int64)


def require_valid(graph: StepGraph, schedule: Schedule) -> None:
    """Raise unless a schedule may be run.

    The order is one of all operators, each after what it depends on. Values that share a storage have one way.
    Only values may be other than KEPT that have one writer each and are neither resident nor among the results; those
    DROPPED have repeatable writers; one that is PACKED, SWAPPED or ON_DEMAND has a reader in a later phase, and its
    storage for itself. Drops exist only in a step without phases: of DROPPED values, after operators that use their
    storage.

    Raises
    ------
    ScheduleError
        Naming the first operator or value that breaks a rule, and the rule.
    """
    n, m = len(graph), graph.values
    order, way = schedule.order, schedule.way
    if order.shape != (n,) or way.shape != (m,):
        raise ScheduleError(
            f"an order of {order.size} operators and {way.size} values; this graph has {n} and {m}"
        )
    if not np.array_equal(np.sort(order), np.arange(n)):
        raise ScheduleError(f"the order is not one of all operators, 0 to {n - 1}, each once")
    place = np.argsort(order)
    for operator, before in enumerate(graph.dependencies().rows()):
        for other in before:
            if place[other] > place[operator]:
                raise ScheduleError(
                    f"{graph.operator_text(operator)} runs before {graph.operator_text(other)}, which it depends on"
                )
    if m and (way.min() < Way.KEPT or way.max() > Way.ON_DEMAND):
        raise ScheduleError(f"a way {way.min()} or {way.max()}; expected {Way.KEPT} to {Way.ON_DEMAND}")
    apart = np.flatnonzero(way != way[graph.storage])
    if len(apart):
        value = int(apart[0])
        raise ScheduleError(
            f"{graph.value_text(value)} is {Way(way[value]).name} and the value whose storage it shares "
            f"{Way(way[graph.storage[value]]).name}; expected one way for one storage"
        )
    may = choices(graph)
    for value in np.flatnonzero(way != Way.KEPT).tolist():
        if Way(way[value]) not in may[graph.storage[value]]:
            allowed = " or ".join(w.name for w in may[graph.storage[value]])
            raise ScheduleError(f"{graph.value_text(value)} is {Way(way[value]).name}; expected {allowed}")

    if schedule.drops is not None:
        _require_drops(graph, schedule.drops, way)


def _require_drops(graph: StepGraph, drops: Relation, way: IntArray) -> None:
    if len(drops) != graph.values:
        raise ScheduleError(f"{len(drops)} rows of drops; expected one for each of {graph.values} values")
    users = graph.users()
    for value, operators in enumerate(drops.rows()):
        where = f"{graph.value_text(value)} is dropped after operators {operators}; expected none, "
        if operators and graph.has_phases():
            raise ScheduleError(where + "in a step with phases")
        if operators and (way[value] != Way.DROPPED or graph.storage[value] != value):
            raise ScheduleError(where + "as it is not DROPPED or shares another one's storage")
        if not users[value].issuperset(operators):
            raise ScheduleError(where + f"or some of {sorted(users[value])}, which use it")


def choices(graph: StepGraph) -> Mapping[int, tuple[Way, ...]]:
    """Return the ways that a schedule may choose for each storage, by the value that has it; KEPT comes first."""
    if graph._choices is None:
        graph._choices = _choices(graph)
    return graph._choices


def _choices(graph: StepGraph) -> dict[int, tuple[Way, ...]]:
    later = read_later(graph)
    writers = graph.writers()
    sharing: dict[int, list[int]] = {}
    for value, storage in enumerate(graph.storage.tolist()):
        sharing.setdefault(storage, []).append(value)
    found: dict[int, tuple[Way, ...]] = {}
    for storage, values in sharing.items():
        ways = [Way.KEPT]
        alone = all(len(writers[value]) == 1 for value in values)
        if alone and not graph.resident[storage] and not graph.kept[values].any():
            if all(graph.repeatable[writers[value][0]] for value in values):
                ways.append(Way.DROPPED)
            if later[storage] and len(values) == 1:
                if graph.packed[storage] < graph.size[storage]:
                    ways.append(Way.PACKED)
                if graph.size[storage] > 0:
                    ways += (Way.SWAPPED, Way.ON_DEMAND)
        found[storage] = tuple(ways)
    return found


def read_later(graph: StepGraph) -> dict[int, bool]:
    """Return for each storage whether an operator of another phase than its first writer's reads or writes it.

    Mostly that is a later phase; where a step has several backward passes, it may be an earlier one.
    """
    phase, users = graph.phase.tolist(), graph.users()
    return {s: len({phase[operator] for operator in users[s]}) > 1 for s in graph.storage.tolist()}


def _ways(graph: StepGraph) -> IntArray:
    later = read_later(graph)
    way = np.full(graph.values, int(Way.KEPT), dtype=np.int64)
    for storage, ways in choices(graph).items():
        if Way.DROPPED in ways and not later[storage]:
            way[storage] = Way.DROPPED
    return way[graph.storage]
