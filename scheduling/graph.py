"""The step graph: what a step computes, from what, in how much memory. No trace of any framework.

An *operator* is one call: forward, backward or update. A *value* is an array that an operator writes: the only one
that does, or, of a sum of gradients, one of several. Several values may share a *storage* (views, results in place);
the storage has the bytes. For a network of two layers, and a loss::

    operator     reads              writes            phase
    0 conv       image, W           h                 forward
    1 relu       h                  y                 forward
    2 loss       y                  e                 forward
    3 loss'      y                  gy                backward
    4 relu'      y, gy              gh                backward
    5 conv'      image, W, gh       gW                backward
    6 sgd        W, gW                                update

A storage is alive from the first operator that writes one of its values to the last that reads or writes one, both
inclusive, or for longer where the program holds it. Resident storages (parameters, state) are alive throughout, and
counted apart. While an operator runs, what it reads, what it writes and its *workspace* are all alive.

An operator that changes a storage, in place, also writes the value that it changes, which then has several writers.

An operator may run when the operators that it depends on have run: those before it that write what it reads, and those
named in ``after`` (an update after all readers of its parameter, sums whose order matters).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..common.archive import read_archive, write_archive
from ..common.errors import FormatError, GraphError

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

KIND, VERSION = "stowplan step graph", 1


class Phase(IntEnum):
    """When in a step an operator runs."""

    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2


class Relation:
    """Which values, or operators, belong to each operator; in compressed rows.

    Attributes
    ----------
    first
        int64 (n + 1,).
    index
        int64 (k,): row ``i`` is ``index[first[i]:first[i + 1]]``.
    """

    __slots__ = ("first", "index")

    first: IntArray
    index: IntArray

    def __init__(self, rows: Iterable[Iterable[int]]) -> None:
        lists = [list(row) for row in rows]
        self.first = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        self.index = np.array([value for row in lists for value in row], dtype=np.int64)
        self._freeze()

    @classmethod
    def from_columns(cls, first: IntArray, index: IntArray) -> Relation:
        """Make one of its two columns."""
        relation = cls.__new__(cls)
        relation.first = np.array(first, dtype=np.int64)
        relation.index = np.array(index, dtype=np.int64)
        relation._freeze()
        return relation

    def _freeze(self) -> None:
        self.first.flags.writeable = self.index.flags.writeable = False

    def __len__(self) -> int:
        return len(self.first) - 1

    def __getitem__(self, row: int) -> list[int]:
        found: list[int] = self.index[self.first[row] : self.first[row + 1]].tolist()
        return found

    def rows(self) -> list[list[int]]:
        """Return all rows."""
        index, first = self.index.tolist(), self.first.tolist()
        return [index[a:b] for a, b in pairwise(first)]


_OPERATOR_COLUMNS = ("phase", "seconds", "workspace", "repeatable")
_VALUE_COLUMNS = ("size", "storage", "resident", "kept", "held", "packed")
_RELATIONS = ("reads", "writes", "after")


@dataclass(init=False, eq=False, repr=False, slots=True)
class StepGraph:
    """A step of n operators, in the order in which it ran, and m values. Immutable; all columns are read-only.

    Parameters
    ----------
    reads, writes
        For each operator the values that it reads and writes, n rows each.
    size
        Bytes of each value's storage, int (m,), 0 or more; of a view 0, as the storage has them.
    storage
        For each value the one whose storage it shares, int (m,), a value that has its own; itself where None.
    after
        For each operator others that must have run before it; n rows. None: none.
    phase
        ``Phase`` of each operator, (n,). None: forward.
    seconds
        Seconds that each operator takes, float (n,). None: 0.
    workspace
        Bytes alive at each operator's fullest moment besides what it reads and writes, int (n,). None: 0.
    repeatable
        Whether an operator that runs again writes the same bits and changes nothing else, bool (n,). None: all
        forward ones.
    resident
        Values that exist before and after the step, bool (m,). None: none.
    kept
        Values that are alive at the end of the step, bool (m,): its results. None: none.
    held
        Up to which operator, inclusive, the program itself holds a value, int (m,), -1 where it does not. None: -1.
    packed
        Bytes that a value can be packed into without loss while no operator reads it, int (m,). None: ``size``.
    label, name
        Names of each operator and of each value, for people.

    Raises
    ------
    GraphError
        Naming the first operator or value that is wrong, and what was expected: columns of different lengths, a
        negative size, an unknown value or operator, a value that is read before it is written, a view of a view.

    Examples
    --------
    A forward operator, its gradient, and the update of the weights, which are value 0:

    >>> from stowplan.scheduling import Phase, StepGraph
    >>> reads, writes, size = [[0], [0, 1], [0, 2]], [[1], [2], [0]], [400, 100, 400]
    >>> phase = [Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE]
    >>> graph = StepGraph(reads, writes, size, phase=phase, resident=[True, False, False])
    >>> graph.resident_bytes, graph.dependencies().rows()
    (400, [[], [0], [1]])
    """

    reads: Relation
    writes: Relation
    after: Relation
    size: IntArray
    storage: IntArray
    phase: IntArray
    seconds: FloatArray
    workspace: IntArray
    repeatable: BoolArray
    resident: BoolArray
    kept: BoolArray
    held: IntArray
    packed: IntArray
    label: tuple[str, ...]
    name: tuple[str, ...]
    _choices: dict[int, Any] | None
    _dependencies: Relation | None

    def __init__(
        self,
        reads: Relation | Iterable[Iterable[int]],
        writes: Relation | Iterable[Iterable[int]],
        size: npt.ArrayLike,
        storage: npt.ArrayLike | None = None,
        *,
        after: Relation | Iterable[Iterable[int]] | None = None,
        phase: npt.ArrayLike | None = None,
        seconds: npt.ArrayLike | None = None,
        workspace: npt.ArrayLike | None = None,
        repeatable: npt.ArrayLike | None = None,
        resident: npt.ArrayLike | None = None,
        kept: npt.ArrayLike | None = None,
        held: npt.ArrayLike | None = None,
        packed: npt.ArrayLike | None = None,
        label: Sequence[str] | None = None,
        name: Sequence[str] | None = None,
    ) -> None:
        self.reads = reads if isinstance(reads, Relation) else Relation(reads)
        self.writes = writes if isinstance(writes, Relation) else Relation(writes)
        n, m = len(self.reads), np.size(size)
        self.size = _column("size", size, np.int64, m)
        self.storage = _column("storage", np.arange(m) if storage is None else storage, np.int64, m)
        rows: Any = ((),) * n if after is None else after
        self.after = rows if isinstance(rows, Relation) else Relation(rows)
        self.phase = _column("phase", np.zeros(n) if phase is None else phase, np.int64, n)
        self.seconds = _column("seconds", np.zeros(n) if seconds is None else seconds, np.float64, n)
        self.workspace = _column("workspace", np.zeros(n) if workspace is None else workspace, np.int64, n)
        forward = self.phase == Phase.FORWARD
        self.repeatable = _column("repeatable", forward if repeatable is None else repeatable, np.bool_, n)
        self.resident = _column("resident", np.zeros(m) if resident is None else resident, np.bool_, m)
        self.kept = _column("kept", np.zeros(m) if kept is None else kept, np.bool_, m)
        self.held = _column("held", np.full(m, -1) if held is None else held, np.int64, m)
        self.packed = _column("packed", self.size if packed is None else packed, np.int64, m)
        self.label = tuple(label) if label is not None else tuple(f"operator {i}" for i in range(n))
        self.name = tuple(name) if name is not None else tuple(f"value {v}" for v in range(m))
        self._choices = self._dependencies = None
        self._check()

    def __len__(self) -> int:
        return len(self.reads)

    @property
    def values(self) -> int:
        """How many values there are, m."""
        return len(self.size)

    @property
    def resident_bytes(self) -> int:
        """Bytes of the resident storages."""
        return int(self.size[self.resident].sum())

    def dependencies(self) -> Relation:
        """Return for each operator those that must have run before it: direct ones, all of lower numbers, (n,) rows."""
        if self._dependencies is None:
            writers: list[list[int]] = [[] for _ in range(self.values)]
            rows = []
            for operator, (reads, writes, after) in enumerate(
                zip(self.reads.rows(), self.writes.rows(), self.after.rows(), strict=True)
            ):
                before = set(after)
                for value in reads:
                    before.update(writers[value])
                rows.append(sorted(before - {operator}))
                for value in writes:
                    writers[value].append(operator)
            self._dependencies = Relation(rows)
        return self._dependencies

    def dependants(self) -> list[list[int]]:
        """Return for each operator those that depend on it directly, all of higher numbers."""
        return _inverse(self.dependencies(), len(self))

    def writers(self) -> list[list[int]]:
        """Return for each value the operators that write it, in the step's order; none for what existed before."""
        return _inverse(self.writes, self.values)

    def users(self) -> list[set[int]]:
        """Return for each value that has a storage the operators that read or write one that shares it."""
        found: list[set[int]] = [set() for _ in range(self.values)]
        storage = self.storage.tolist()
        for relation in (self.reads, self.writes):
            for operator, values in enumerate(relation.rows()):
                for value in values:
                    found[storage[value]].add(operator)
        return found

    def operator_text(self, i: int) -> str:
        """Return what an operator is called in messages."""
        return f"{self.label[i]} (operator {i})"

    def value_text(self, v: int) -> str:
        """Return what a value is called in messages."""
        return f"{self.name[v]} (value {v})"

    def has_phases(self) -> bool:
        """Whether its operators are of several phases: then the program itself runs those of the first one."""
        return bool(len(self) and (self.phase != self.phase[0]).any())

    def with_seconds(self, seconds: npt.ArrayLike) -> StepGraph:
        """Return the same graph with other seconds, (n,)."""
        graph = copy.copy(self)
        graph.seconds = _column("seconds", seconds, np.float64, len(self))
        graph._check()
        return graph

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a file.

        Raises
        ------
        OSError
            The file cannot be written. The old one, if any, is untouched.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            key: getattr(self, key) for key in (*_OPERATOR_COLUMNS, *_VALUE_COLUMNS)
        }
        for key in _RELATIONS:
            relation: Relation = getattr(self, key)
            columns[f"{key}_first"], columns[f"{key}_index"] = relation.first, relation.index
        write_archive(path, KIND, VERSION, {"label": self.label, "name": self.name}, columns)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StepGraph:
        """Read what `save` wrote.

        Raises
        ------
        FormatError
            The file is truncated or foreign, of another version, or its columns contradict each other.
        OSError
            The file cannot be opened.
        """
        header, columns = read_archive(path, KIND, VERSION)
        try:
            known: dict[str, Any] = {
                key: Relation.from_columns(columns[f"{key}_first"], columns[f"{key}_index"])
                for key in _RELATIONS
            }
            known.update((key, columns[key]) for key in (*_OPERATOR_COLUMNS, *_VALUE_COLUMNS))
            return cls(**known, label=header["label"], name=header["name"])
        except (GraphError, KeyError, TypeError, ValueError, IndexError) as error:
            raise FormatError(path, f"not a valid step graph ({error})") from None

    def _check(self) -> None:
        n, m = len(self), self.values
        _check_relation("reads", self.reads, n, m, "value")
        _check_relation("writes", self.writes, n, m, "value")
        _check_relation("after", self.after, n, n, "operator")
        if len(self.label) != n or len(self.name) != m:
            raise GraphError(f"{len(self.label)} labels and {len(self.name)} names; expected {n} and {m}")
        for what in ("size", "packed", "seconds", "workspace"):
            column = getattr(self, what)
            if not (column >= 0).all():
                i = int((column >= 0).argmin())
                text = self.value_text(i) if what in _VALUE_COLUMNS else self.operator_text(i)
                raise GraphError(f"{text}: {what} {column[i]}; expected 0 or more")
        for what, least, count, kind in (("storage", 0, m, "a value"), ("held", -1, n, "an operator")):
            column = getattr(self, what)
            outside = np.flatnonzero((column < least) | (column >= count))
            if len(outside):
                v = int(outside[0])
                none = " or -1" if least < 0 else ""
                raise GraphError(
                    f"{self.value_text(v)}: {what} {column[v]}; expected {kind}, 0 to {count - 1}{none}"
                )
        views = np.flatnonzero(self.storage[self.storage] != self.storage)
        if len(views):
            view = self.value_text(int(views[0]))
            raise GraphError(f"{view} is a view of a view; expected the value that has the storage")
        written = self.resident[self.storage].copy()
        for operator, (reads, writes) in enumerate(zip(self.reads.rows(), self.writes.rows(), strict=True)):
            for value in reads:
                if not written[value]:
                    raise GraphError(
                        f"{self.operator_text(operator)} reads {self.value_text(value)}, which no operator before it "
                        "writes; expected a resident value or a written one (a cycle?)"
                    )
            for value in writes:
                written[value] = True


def _inverse(relation: Relation, count: int) -> list[list[int]]:
    """Return for each of so many entries the rows that have it, in order."""
    found: list[list[int]] = [[] for _ in range(count)]
    for row, entries in enumerate(relation.rows()):
        for entry in entries:
            found[entry].append(row)
    return found


def _column(name: str, values: npt.ArrayLike, dtype: Any, length: int) -> Any:
    try:
        column = np.array(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise GraphError(f"{name}: {error}; expected {np.dtype(dtype).name}") from None
    if column.shape != (length,):
        raise GraphError(f"{name} has shape {column.shape}; expected ({length},)")
    column.flags.writeable = False
    return column


def _check_relation(what: str, rows: Relation, n: int, count: int, kind: str) -> None:
    if len(rows) != n:
        raise GraphError(f"{what} has {len(rows)} rows; expected one for each of {n} operators")
    first, index = rows.first, rows.index
    if first[0] != 0 or first[-1] != len(index) or (np.diff(first) < 0).any():
        raise GraphError(f"{what}: its rows do not follow each other")
    wrong = np.flatnonzero((index < 0) | (index >= count))
    if len(wrong):
        row = int(np.searchsorted(first, wrong[0], side="right")) - 1
        raise GraphError(f"operator {row} {what} {kind} {index[wrong[0]]}; there are {count}")
    if kind == "operator":
        own = np.repeat(np.arange(n), np.diff(first))
        late = np.flatnonzero(index >= own)
        if len(late):
            i, j = int(own[late[0]]), int(index[late[0]])
            raise GraphError(f"operator {i} comes after operator {j}, which is not before it (a cycle?)")
