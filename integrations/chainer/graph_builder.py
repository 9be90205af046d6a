"""Build a step graph from what a running step tells of its calls. Knows arrays, and nothing of a framework.

::

    call      one row; both it and a value are named by a number      backward step of relu
    outside   what a call reads, and none wrote: one more row,        a batch, a mask that was drawn
              before the call's, which cannot run again
    value     an array; a view has no bytes of its own, and the
              storage of the array that owns its memory

A value that is watched is held by the program until its variable, or array, goes: up to the last call that has begun.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from ..profiler.unbroken import passed_on
from ..scheduling import Phase, StepGraph

OUTSIDE, LEFT = ("", 0), ("", 1)
"""Parts of the calls that write what comes from outside, and the gradients that the step before has left."""

TO_THE_END = 1 << 62


@dataclass
class Call:
    """A recorded call: a row of the graph, and perhaps one before it for arrays from outside."""

    label: str
    phase: Phase
    part: tuple[str, int]
    reads: dict[int, None] = field(default_factory=dict)  # in order, each once
    writes: list[int] = field(default_factory=list)
    outside: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)  # calls
    repeatable: bool = False
    made: int = 0  # bytes of the arrays that it made
    beside: int = 0  # bytes of swapped parameters in memory meanwhile
    row: int = -1  # in the graph


@dataclass
class Value:
    """A recorded value."""

    name: str
    size: int
    storage: int
    packed: int
    resident: bool = False
    held: int = -1  # the last call during which the program holds it


class GraphBuilder:
    """A step graph that is being built.

    Attributes
    ----------
    calls, values
        All so far, by number.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.values: list[Value] = []
        # By id of an array that owns memory: the array, and its value.
        self._owners: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._watched: dict[int, weakref.ref[Any]] = {}  # by value
        self.terms: dict[Any, list[int]] = {}  # by sum: the calls that add to it

    def begin(self, call: Call, reads: Iterable[int] = ()) -> int:
        """Add a call; return its number."""
        call.reads.update(dict.fromkeys(reads))
        self.calls.append(call)
        return len(self.calls) - 1

    def add(self, array: Any, name: str, resident: bool = False) -> int:
        """Return a new value for an array: with a storage of its own, or in that of the array whose memory it shows."""
        number, storage = len(self.values), self.storage_of(array)
        if storage >= 0:
            self.values.append(Value(name, 0, storage, 0))
        else:
            root = root_of(array)
            self._owners[id(root)] = weakref.ref(root), number
            self.values.append(Value(name, int(root.nbytes), number, int(root.nbytes), resident))
        return number

    def storage_of(self, array: Any) -> int:
        """Return the storage of the array whose memory an array shows; -1: it has none yet."""
        root = root_of(array)
        owner, value = self._owners.get(id(root), (None, -1))
        return self.values[value].storage if owner is not None and owner() is root else -1

    def write(self, call: Call, array: Any, name: str) -> int:
        """Return a new value for an array that a call made."""
        value = self.add(array, name)
        call.writes.append(value)
        call.made += self.values[value].size
        return value

    def hold(self, value: int) -> None:
        """Note that the program holds a value until the step is over."""
        self.values[value].held = TO_THE_END

    def watch(self, x: Any, value: int) -> None:
        """Record the call during which the program lets go of a variable, or of an array that owns memory."""
        builder = weakref.ref(self)

        @passed_on
        def gone(_: Any) -> None:
            graph = builder()
            if graph is not None and graph._watched.pop(value, None) is not None:
                graph.values[value].held = len(graph.calls) - 1

        self._watched[value] = weakref.ref(x, gone)

    def add_terms(self, total: Any, call: int, terms: int) -> None:
        """Note that a call adds terms to a sum, which stands for itself."""
        self.terms.setdefault(total, []).extend([call] * terms)

    def build(self, rises: Sequence[int]) -> tuple[StepGraph, list[Call]]:
        """Return the graph, and a call for each of its rows.

        Parameters
        ----------
        rises
            The bytes by which each call raised the live bytes at its fullest moment.
        """
        for value in self._watched:
            self.hold(value)
        for numbers in self.terms.values():
            if len(numbers) >= 3:  # a sum of three or more depends on its order
                for before, later in pairwise(dict.fromkeys(numbers)):
                    self.calls[later].after.append(before)
        rows: list[Call] = []
        workspace = []
        for call, rise in zip(self.calls, rises, strict=True):
            if call.part == LEFT and not call.writes:
                continue
            if call.outside:
                rows.append(Call(f"for {call.label}", Phase.FORWARD, OUTSIDE, writes=call.outside))
                workspace.append(0)
            call.row = len(rows)
            rows.append(call)
            workspace.append(max(0, rise - call.made) + call.beside)
        row_of = [call.row for call in self.calls]
        graph = StepGraph(
            [row.reads for row in rows],
            [row.writes for row in rows],
            [value.size for value in self.values],
            [value.storage for value in self.values],
            after=[sorted({row_of[number] for number in row.after}) for row in rows],
            phase=[row.phase for row in rows],
            workspace=workspace,
            repeatable=[row.repeatable for row in rows],
            resident=[value.resident for value in self.values],
            held=[
                len(rows) - 1 if value.held >= len(row_of) else row_of[value.held] if value.held >= 0 else -1
                for value in self.values
            ],
            packed=[value.packed for value in self.values],
            label=[row.label for row in rows],
            name=[value.name for value in self.values],
        )
        return graph, rows


def root_of(array: Any) -> Any:
    """Return the array that owns an array's memory."""
    while isinstance(getattr(array, "base", None), (np.ndarray, type(array))):
        array = array.base
    return array
