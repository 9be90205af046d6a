"""What a step under a budget keeps while no schedule exists: the first steps, whose operators are not known yet.

::

    forward    keep all, until that is KEPT of the room      then drop, SEGMENT after SEGMENT
    backward   .......................................      a segment is rebuilt from its checkpoints, and goes

A value is a *checkpoint* if an operator reads it whose outputs are dropped, and it is not dropped in the same segment.
A segment is rebuilt from checkpoints alone, however the graph branches, and they stay until the last such operator's
backward step is over. So at most a segment is live besides what is kept, as in T. Chen et al., *Training Deep Nets with
Sublinear Memory Cost* (2016), where the operators are known. Bytes count of values that a backward step reads. Only
operators that were tried run again, in a chain once. O(1) for each operator, besides what `room` takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..profiler.unbroken import WeakKeys
from . import bit_packing
from .function_state import FunctionState, array_of, clear, drop_outputs, pack
from .rerun import hidden_arrays, is_idempotent, rebuildable, settings

KEPT, SEGMENT = 1 / 8, 1 / 6
"""Shares of the room. The rest is for gradients and for what an operator takes while it runs."""


@dataclass(slots=True)
class _Value:
    """What is known of a node in this step."""

    segment: int = -1
    """In which it was dropped."""
    readers: int = 0
    """Operators of dropped outputs that read it, and whose backward steps are to come."""
    is_checkpoint: bool = False
    counted: str = ""
    """As what its bytes count: ``"kept"`` or ``"dropped"``."""


class Sparing:
    """Decides, operator by operator, which values of one step are dropped.

    Parameters
    ----------
    room
        Returns the bytes that the step may have alive besides what outlives it: fewer, as a first step goes on, that
        makes parameters.
    """

    def __init__(self, room: Callable[[], int]) -> None:
        self._room_now = room
        self._room = 0
        self._kept = self._dropped = 0  # bytes; dropped: in this segment
        self._segment, self._is_full = 0, False
        self._values: WeakKeys[_Value] = WeakKeys()

    def after_forward(
        self, function: Any, held: Iterable[Any], inputs: Any, outputs: Any
    ) -> Callable[[Any], None]:
        """Free the arrays that the room is too small for; return what hides the function's hidden ones (`Hiding`).

        Parameters
        ----------
        function, inputs, outputs
            A `chainer.FunctionNode` that has just been applied, what to, and its variables.
        held
            Arrays that the function held before it was applied: they are the caller's.
        """
        xs, ys = [*map(array_of, inputs)], [y._data[0] for y in outputs]
        hidden = hidden_arrays(function, [*held, *xs, *ys])
        self._spare(function, xs, outputs)
        return self._hide(function, hidden, xs, ys)

    def _spare(self, function: Any, arrays: list[Any], outputs: Any) -> None:
        self._room = self._room_now()
        if self._keeps([function.inputs[index] for index in function._input_indexes_to_retain or ()]):
            self._begin_segment()
        if self._kept >= KEPT * self._room and not self._is_full and _repeats(function, arrays, outputs):
            size = sum(_bytes_of(y.node) for y in outputs)
            self._is_full = self._dropped > 0 and self._dropped + size > SEGMENT * self._room
            if not self._is_full:
                for y in outputs:
                    self._value(y.node).segment = self._segment
                function._stowplan.settings = settings()
                for node, array in dict(zip(function.inputs, arrays, strict=True)).items():
                    self._begin_with(node, array)
        keeps = self._keeps([outputs[index].node for index in function._output_indexes_to_retain or ()])
        for node in (*function.inputs, *(y.node for y in outputs)):
            if self._drops(node):
                node._data = None
        drop_outputs(function, lambda index, _: self._drops(outputs[index].node))
        if keeps:
            self._begin_segment()

    def _hide(
        self, function: Any, hidden: dict[str, Any], xs: list[Any], ys: list[Any]
    ) -> Callable[[Any], None]:
        """Return what packs these hidden arrays, or clears those that the function makes again; count what is left."""
        packed = {name: bit_packing.pack(array) for name, array in hidden.items()}
        whole = [name for name in hidden if packed[name] is None]
        cleared: frozenset[str] = frozenset()
        if whole and function._stowplan.settings is not None:
            cleared = rebuildable(function, xs, ys, whole, settings())
        for name in whole:
            self._count(hidden[name].nbytes, drops=name in cleared)

        def hide(function: Any) -> None:
            for name, one in packed.items():
                pack(function, name, one)
            clear(function, cleared)

        return hide

    def _count(self, size: int, drops: bool) -> None:
        """Count bytes that are kept for a backward step, or dropped in this segment."""
        if drops:
            self._dropped += size
        else:
            self._kept += size

    def _begin_segment(self) -> None:
        """Begin a segment, if this one is full: what is kept now would be kept in any case."""
        if self._is_full:
            self._segment += 1
            self._dropped, self._is_full = 0, False

    def _drops(self, node: Any) -> bool:
        """Whether a node's array goes: it was dropped in this segment, and the program has not cut off its maker."""
        return node.creator_node is not None and self._value(node).segment == self._segment

    def _begin_with(self, node: Any, array: Any) -> None:
        """Make a node that an operator of this segment reads a checkpoint, unless it is dropped in the segment, too."""
        value = self._value(node)
        value.readers += 1
        if node.creator_node is None:
            node._data = array  # from outside; the program may let go of it
        elif not self._drops(node) and not value.is_checkpoint:
            node._data, value.is_checkpoint = array, True
            if value.counted != "kept":
                value.counted = "kept"
                self._count(_bytes_of(node), drops=False)

    def _keeps(self, retained: Iterable[Any]) -> bool:
        """Count what a function retains, each value once; return whether a value is kept."""
        kept = self._kept
        for node in retained:
            value = self._value(node)
            if node.creator_node is None or value.counted:
                continue
            value.counted = "dropped" if self._drops(node) else "kept"
            self._count(_bytes_of(node), self._drops(node))
        return self._kept > kept

    def is_checkpoint(self, node: Any) -> bool:
        """Whether a node is a checkpoint that an operator may yet read when it runs again."""
        value = self._value(node)
        return value.is_checkpoint and value.readers > 0

    def release(self, function: Any) -> list[Any]:
        """Note that a function will not run again; return the nodes that were checkpoints, and are none any more."""
        if function._stowplan.settings is None:
            return []
        nodes = dict.fromkeys(function.inputs)
        for node in nodes:
            self._value(node).readers -= 1
        return [node for node in nodes if self._value(node).is_checkpoint and not self.is_checkpoint(node)]

    def _value(self, node: Any) -> _Value:
        return self._values.setdefault(node, _Value())


def _repeats(function: Any, arrays: Iterable[Any], outputs: Any) -> bool:
    """Whether a function that has just been applied gives the same again, by a trial, if there was none yet."""
    state: FunctionState = function._stowplan
    if state.repeatable is None:
        state.repeatable = is_idempotent(function, arrays, [y._data[0] for y in outputs], settings())
    return state.repeatable


def _bytes_of(node: Any) -> int:
    return int(math.prod(node.shape)) * int(np.dtype(node.dtype).itemsize)
