"""A schedule as directions for each of Chainer's operators, and the search for the schedule of a running step.

A *structure* is the sequence of a step's forward operators: the class of each, the values that it reads and writes, and
their shapes. Steps of one structure have one step graph, and one schedule. The structure of a running step is not known
at its beginning: the follower keeps the structures that agree with all operators so far, and gives the directions of
the first of them. Decisions taken for another structure are local, and stay valid::

    structures     a b c d e      a b c f g        for instance two lengths of sentences
    operators      a b c          both agree: the first one's directions
                   a b c f        the second one's from here on
                   a b c f x      none: the rest of the step runs as Chainer's
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..profiler.unbroken import WeakKeys
from ..scheduling import Outcome, Phase, Schedule, StepGraph, Way
from .evictions import BACKWARD, FORWARD, Moment


@dataclass(frozen=True)
class Operator:
    """One forward operator of a structure.

    Attributes
    ----------
    kind
        Class of the function, and shapes and types of its outputs.
    reads, writes
        Numbers of the values in the step graph, one for each input and output.
    leaves
        For each input that no operator writes, the number of the value, and the parameter's id or the array's shape and
        type.
    hidden
        Numbers of the values of hidden arrays, by name.
    forward, backward
        Numbers of its operators in the step graph; -1: it has no backward step. Steps of one structure agree in all but
        these and the hidden arrays.
    """

    kind: tuple[Any, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    leaves: Mapping[int, Any]
    hidden: Mapping[str, int] = field(compare=False)
    forward: int = field(compare=False)
    backward: int = field(compare=False)


@dataclass(frozen=True)
class Structure:
    """The forward operators of a step, in order."""

    operators: tuple[Operator, ...]


@dataclass(frozen=True)
class OperatorDirections:
    """What to do after one forward operator.

    Attributes
    ----------
    clear, pack
        Names of the hidden arrays to clear, and to pack.
    evict
        Names and values of the hidden arrays to evict.
    again
        Whether it may run again later: it does in the schedule, an array that it makes is dropped, or goes before the
        backward step of another one that may.
    repeatable
        Whether it may run again.
    """

    clear: tuple[str, ...]
    pack: tuple[str, ...]
    evict: tuple[tuple[str, int], ...]
    again: bool
    repeatable: bool


@dataclass(frozen=True)
class Directions:
    """A schedule, for steps of one structure.

    Attributes
    ----------
    structure
        The structure of these steps.
    operators
        The directions for each forward operator.
    dropped
        Values whose arrays are freed as soon as the program lets go of them.
    order
        Place of each forward operator's backward step among all backward steps.
    last_place
        The last place at which a value is read whose array is kept, for a backward step or a recomputation; of one that
        is dropped, and made again, at which any in its storage is.
    released
        The values that are not read after each place.
    evicted
        The values that are evicted after each forward operator.
    leaves, fetched
        Values that are to be out of memory, and those to be fetched, by the moment before which that is.
    """

    structure: Structure
    operators: tuple[OperatorDirections, ...]
    dropped: frozenset[int]
    order: Mapping[int, int]
    last_place: Mapping[int, int]
    released: Mapping[int, Sequence[int]] = field(repr=False)
    evicted: Mapping[int, Sequence[int]] = field(repr=False)
    leaves: Mapping[Moment, Sequence[int]] = field(repr=False)
    fetched: Mapping[Moment, Sequence[int]] = field(repr=False)

    @classmethod
    def of(cls, structure: Structure, graph: StepGraph, schedule: Schedule, outcome: Outcome) -> Directions:
        """Translate a schedule.

        Parameters
        ----------
        structure, graph
            The structure and its step graph, as they were recorded.
        schedule, outcome
            For this graph: the schedule, and the result of `scheduling.simulate`.
        """
        way = schedule.way.tolist()
        backward = [int(operator) for operator in schedule.order if graph.phase[operator] == Phase.BACKWARD]
        place = {operator: number for number, operator in enumerate(backward)}
        # The backward steps before each operator of the schedule.
        over = [0, *np.cumsum(graph.phase[schedule.order] == Phase.BACKWARD).tolist()]
        position_of = {operator: position for position, operator in enumerate(schedule.order.tolist())}
        first: dict[int, int] = {}  # of each value, the backward steps before an operator writes or reads it
        for operator in structure.operators:
            for value in (*operator.reads, *operator.writes):
                first.setdefault(value, over[position_of[operator.forward]])
        outside = {v for operator in structure.operators for v in operator.leaves}
        last_place: dict[int, int] = {}
        released: dict[int, list[int]] = {}
        for value, before in first.items():
            position = int(outcome.released[value])
            last = over[position + 1] - 1 if position >= 0 else len(backward)
            if way[value] in (Way.KEPT, Way.DROPPED) and last >= before:
                last_place[value] = last
                released.setdefault(last, []).append(value)
        evicted, leaves, fetched = _moments(structure, graph, schedule, outcome)
        hidden = {v for operator in structure.operators for v in operator.hidden.values()}

        # Where the program lets go of a variable meanwhile, operators run again later than in the schedule, and so may
        # those that make an input that goes before their backward step.
        again = {operator for _, operators in outcome.recomputed for operator in operators}
        maker = {v: operator.forward for operator in structure.operators for v in operator.writes}
        for operator in reversed(structure.operators):
            made = (*operator.writes, *operator.hidden.values())
            if operator.forward in again or any(way[v] == Way.DROPPED for v in made):
                until = place.get(operator.backward, len(backward))
                gone = [v for v in operator.reads if v in maker and last_place.get(v, -1) < until]
                again |= {operator.forward, *(maker[v] for v in gone)}
        out = {v for values in leaves.values() for v in values}
        return cls(
            structure=structure,
            operators=tuple(
                OperatorDirections(
                    tuple(name for name, v in operator.hidden.items() if way[v] == Way.DROPPED),
                    tuple(name for name, v in operator.hidden.items() if way[v] == Way.PACKED),
                    tuple((name, v) for name, v in operator.hidden.items() if v in out),
                    operator.forward in again,
                    bool(graph.repeatable[operator.forward]),
                )
                for operator in structure.operators
            ),
            dropped=frozenset(v for v in first.keys() - outside if way[v] == Way.DROPPED),
            order={
                number: place[operator.backward]
                for number, operator in enumerate(structure.operators)
                if operator.backward >= 0
            },
            last_place=last_place,
            released=released,
            evicted={k: [v for v in values if v not in hidden] for k, values in evicted.items()},
            leaves=leaves,
            fetched=fetched,
        )


def _moments(
    structure: Structure, graph: StepGraph, schedule: Schedule, outcome: Outcome
) -> tuple[dict[int, list[int]], dict[Moment, list[int]], dict[Moment, list[int]]]:
    """Return the values that are evicted, by forward operator, and when they leave and are fetched, by moment."""
    number = {operator.forward: k for k, operator in enumerate(structure.operators)}
    order = schedule.order.tolist()
    moment: list[Moment] = [(BACKWARD, len(order))] * (len(order) + 1)  # the next one, from each position on
    place = int((graph.phase == Phase.BACKWARD).sum())
    for position in range(len(order) - 1, -1, -1):
        moment[position] = moment[position + 1]
        if order[position] in number:
            moment[position] = (FORWARD, number[order[position]])
        elif graph.phase[order[position]] == Phase.BACKWARD:
            place -= 1
            moment[position] = (BACKWARD, place)
    last_reader: dict[int, int] = {}
    for k, operator in enumerate(structure.operators):
        last_reader.update(dict.fromkeys((*operator.reads, *operator.writes, *operator.hidden.values()), k))
    evicted: dict[int, list[int]] = {}
    leaves: dict[Moment, list[int]] = {}
    fetched: dict[Moment, list[int]] = {}
    for value, out, back in outcome.swapped:
        if value in last_reader:
            evicted.setdefault(last_reader[value], []).append(value)
            leaves.setdefault(moment[out], []).append(value)
            fetched.setdefault(moment[back], []).append(value)
    return evicted, leaves, fetched


class Follower:
    """Finds, among structures that are known, that of a running step.

    Parameters
    ----------
    known
        Structures and their directions, the likeliest first.

    Attributes
    ----------
    directions
        The directions of the first structure that agrees with all operators so far; None if none does.
    signature
        A number that steps of the same operators share, known or not.
    """

    def __init__(self, known: Sequence[tuple[Structure, Directions | None]]) -> None:
        self._known = list(known)
        self._values: WeakKeys[int] = WeakKeys()  # of nodes that this step has seen
        self._count = 0
        self.signature = 0
        self.directions: Directions | None = self._known[0][1] if self._known else None

    @property
    def structure(self) -> Structure | None:
        """The structure of the whole step; None if it departed from all, or has not ended."""
        if self._known and len(self._known[0][0].operators) == self._count:
            return self._known[0][0]
        return None

    def saw(self, function: Any, inputs: Any, outputs: Any) -> Directions | None:
        """Add the next operator; return the directions for it."""
        kind = kind_of(function, outputs)
        self.signature = hash((self.signature, kind, *map(leaf_of, function.inputs)))
        number = self._count
        self._count += 1
        self._known = [one for one in self._known if self._agrees(one[0], number, kind, function.inputs)]
        if not self._known:
            self.directions = None
            return None
        structure, self.directions = self._known[0]
        operator = structure.operators[number]
        for node, value in zip(function.inputs, operator.reads, strict=True):
            if value in operator.leaves:
                self._values[node] = value
        for output, value in zip(outputs, operator.writes, strict=True):
            self._values[output.node] = value
        return self.directions

    def _agrees(self, structure: Structure, number: int, kind: tuple[Any, ...], nodes: Sequence[Any]) -> bool:
        if number >= len(structure.operators):
            return False
        operator = structure.operators[number]
        if operator.kind != kind or len(operator.reads) != len(nodes):
            return False
        for node, value in zip(nodes, operator.reads, strict=True):
            if value in operator.leaves:
                if node.creator_node is not None or operator.leaves[value] != leaf_of(node):
                    return False
            elif self.value_of(node) != value:
                return False
        return True

    def value_of(self, node: Any) -> int:
        """Return the number of a node's value; -1 if it has none in this step."""
        return self._values.get(node, -1)

    def order(self) -> Mapping[int, int] | None:
        """Return the place of each operator's backward step; None unless the whole step has one of the structures."""
        return self.directions.order if self.directions is not None and self.structure is not None else None


def kind_of(function: Any, outputs: Any) -> tuple[Any, ...]:
    """Return what two steps must have in common in an operator: class, and shapes and types of outputs."""
    return (type(function), *((y.shape, y.dtype) for y in outputs))


def leaf_of(node: Any) -> Any:
    """Return what two steps must have in common in a leaf: the parameter, or shape and type."""
    return id(node) if is_parameter(node) else (node.shape, node.dtype)


def is_parameter(node: Any) -> bool:
    """Whether a node is that of a `chainer.Parameter`, which outlives the step."""
    import chainer

    return isinstance(node._variable(), chainer.Parameter)
