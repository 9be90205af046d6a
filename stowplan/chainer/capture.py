"""Record a running step as a step graph: operators, the values they read and write, bytes, seconds.

The step is lean: it releases arrays early, sums gradients in place, and updates early if it may. The graph records what
such a step does, so that its lifetimes are those of the run::

    apply        F k   reads inputs, writes outputs and hidden arrays       forward
    backprop     B k   reads what F k retained, and its outputs' gradients;
                       writes its inputs' gradients, or adds to them        backward
    update       U p   reads the gradient of parameter p                    update

An array from outside of all operators (a batch, a mask that was drawn) is written by an operator of its own, which
cannot run again. The first operator writes the gradients that the step before has left, where this step leaves them to
the next one, too. The recording follows these, and variables that the program holds, until they go.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import chainer
import numpy as np

from ..scheduling import Phase, StepGraph
from . import masks
from .directions import Operator, Structure, is_parameter, kind_of, leaf_of
from .meter import Meter
from .rerun import DRAWN, held_arrays, hidden_arrays, is_idempotent, rebuildable, settings
from .timed import Seconds, TimedStep

__all__ = ["Recording", "RecordingStep"]


@dataclass(frozen=True)
class Recording:
    """The recording of a step.

    Attributes
    ----------
    structure
        Its forward operators.
    graph
        Its step graph, with the seconds of the recorded step itself.
    parts
        By operator of the graph, the key of its seconds: ``"forward", number``; ``"backward", number``; ``"update", id
        of the parameter's node``; ``"", 0`` or ``1``.
    """

    structure: Structure
    graph: StepGraph
    parts: tuple[tuple[str, int], ...]

    def with_seconds(self, seconds: Seconds) -> StepGraph:
        """Return the graph with these seconds."""
        found = np.zeros(len(self.graph))
        for row, (part, number) in enumerate(self.parts):
            if part == "forward":
                found[row] = seconds.forward[number]
            elif part:
                found[row] = getattr(seconds, part).get(number, 0.0)
        return self.graph.with_seconds(found)


@dataclass
class _Call:
    """A recorded call: an operator of the graph, and perhaps one before it for arrays from outside."""

    label: str
    phase: Phase
    part: tuple[str, int]
    reads: dict[int, None] = field(default_factory=dict)  # in order, each once
    writes: list[int] = field(default_factory=list)
    outside: list[int] = field(default_factory=list)  # what it reads, and no operator wrote
    after: list[int] = field(default_factory=list)  # calls
    repeatable: bool = False
    row: int = -1  # in the graph


@dataclass
class _Value:
    name: str
    size: int
    storage: int
    packed: int
    resident: bool = False
    held: int = -1  # the last call during which the program holds it


_TO_THE_END = 1 << 62
_LEFT = ("", 1)
"""Part of the call that writes the gradients that the step before has left."""


class RecordingStep(TimedStep):
    """A lean step that is recorded.

    Parameters
    ----------
    meter
        Measures the workspaces; entered around the step.
    resident
        Arrays that outlive the step: parameters, and persistent values of the model.
    parameters
        Objects of `chainer.Parameter` whose gradients may be left from one step to the next.
    check
        Whether each function runs once more, to see whether it may run again.
    """

    def __init__(
        self,
        meter: Meter,
        resident: Iterable[Any],
        parameters: Iterable[Any] = (),
        check: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.meter = meter
        self._check = check
        self._calls: list[_Call] = []
        self._recorded: list[_Value] = []
        self._operators: list[Operator] = []
        self._owner: dict[
            int, tuple[weakref.ref[Any], int]
        ] = {}  # by id of an array that owns memory: its value
        self._of_node: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of nodes that this step has seen
        self._gradient: dict[Any, int] = {}  # of each node, the value of its gradient
        self._forward_call: dict[int, int] = {}  # by number of the forward operator
        self._readers: dict[int, list[int]] = {}  # by id of a parameter's node: calls
        self._first: dict[int, int] = {}  # by value of a gradient: the call that writes it first
        self._terms: dict[
            Any, list[int]
        ] = {}  # of each node's gradient, by call, one for each term of the sum
        self._alive: set[int] = set()  # values whose variables the program holds
        self._watched: dict[int, weakref.ref[Any]] = {}
        self._running = False
        for array in resident:
            self._own(array, "persistent", resident=True)
        self._left: dict[int, Any] = {}  # by value of a gradient that is there before the step: its parameter
        call = _Call("gradients of the step before", Phase.FORWARD, _LEFT)
        for param in parameters:
            if param.grad is not None:
                root = _root(param.grad)
                value = self._write(call, root, f"gradient of {param.name}")
                self._watch(root, value)
                self._left[value] = param
        if self._left:
            self._calls.append(call)

    # --- forward ------------------------------------------------------------------------------------------------------

    def apply(self, function: Any, inputs: Any) -> Any:
        """Apply a function, and record it."""
        inputs = [chainer.as_variable(x) for x in inputs]
        known = list(held_arrays(function).values())
        number = len(self._calls)
        self.meter.runs(number)
        try:
            outputs = super().apply(function, inputs)
        finally:
            self.meter.runs(-1)
        if function.inputs is None:
            return outputs
        call = _Call(function.label, Phase.FORWARD, ("forward", self.count))
        reads = [self._input(call, x) for x in inputs]
        call.reads.update(dict.fromkeys(reads))
        xs, ys = [x._data[0] for x in inputs], [y._data[0] for y in outputs]
        writes = [self._write(call, y, f"{call.label} {self.count}.{i}") for i, y in enumerate(ys)]
        hidden = {
            name: self._write(call, array, f"{call.label} {self.count}.{name}", pack=True)
            for name, array in hidden_arrays(function, [*known, *xs, *ys]).items()
        }
        self._calls.append(call)
        for y, value in zip(outputs, writes, strict=True):
            self._of_node[y.node] = value
            self._watch(y, value)
        if self._check:
            self._find_out(function, call, xs, ys, hidden)
        for x in inputs:
            self._readers.setdefault(id(x.node), []).append(number)
        self._forward_call[self.count] = number
        leaves = {v: leaf_of(x.node) for x, v in zip(inputs, reads, strict=True) if x.creator_node is None}
        kind = kind_of(function, outputs)
        self._operators.append(Operator(kind, tuple(reads), tuple(writes), leaves, hidden, number, -1))
        return outputs

    def _find_out(self, function: Any, call: _Call, xs: Any, ys: Any, hidden: dict[str, int]) -> None:
        """Run the function again to see if it may be; hidden arrays that it cannot make again count as from outside."""
        config = settings()
        call.repeatable = is_idempotent(function, xs, ys, config)
        if not call.repeatable or not hidden:
            return
        remade = rebuildable(function, xs, ys, hidden, config) - DRAWN.get(type(function), frozenset())
        outside = [value for name, value in hidden.items() if name not in remade]
        call.writes = [value for value in call.writes if value not in outside]
        call.outside += outside
        call.reads.update(dict.fromkeys(outside))

    def _repeats(self, function: Any, inputs: Any, outputs: Any) -> bool:
        return self._calls[-1].repeatable

    def _input(self, call: _Call, x: Any) -> int:
        """Return the value of an input; a new one if no operator wrote it."""
        value = self._of_node.get(x.node)
        if value is not None:
            return value
        value = self._own(x._data[0], x.name or ("parameter" if is_parameter(x.node) else "input"))
        if self._recorded[value].storage == value:
            # A slice of a data set that the program has: the rest of the set is not part of the step.
            self._recorded[value].size = self._recorded[value].packed = int(x._data[0].nbytes)
        if is_parameter(x.node):
            self._recorded[self._recorded[value].storage].resident = True
        self._of_node[x.node] = value
        if not self._recorded[self._recorded[value].storage].resident:
            self._recorded[value].held = _TO_THE_END  # by the caller
            call.outside.append(value)
        return value

    def _own(self, array: Any, name: str, resident: bool = False, pack: bool = False) -> int:
        """Return a new value for an array: with a storage of its own, or in that of the array whose memory it shows."""
        number = len(self._recorded)
        root = _root(array)
        seen, owner = self._owner.get(id(root), (None, -1))
        if seen is not None and seen() is root:
            self._recorded.append(_Value(name, 0, self._recorded[owner].storage, 0))
            return number
        self._owner[id(root)] = weakref.ref(root), number
        packed = masks.pack(array) if pack and root is array else None
        size = int(root.nbytes)
        self._recorded.append(_Value(name, size, number, packed.nbytes if packed else size, resident))
        return number

    def _write(self, call: _Call, array: Any, name: str, pack: bool = False) -> int:
        value = self._own(array, name, pack=pack)
        call.writes.append(value)
        return value

    def _watch(self, x: Any, value: int) -> None:
        """Record the call during which the program lets go of a variable, or of an array that owns memory."""
        self._alive.add(value)
        recording = weakref.ref(self)

        def gone(_: Any) -> None:
            step = recording()
            if step is not None and value in step._alive:
                step._alive.discard(value)
                step._recorded[value].held = len(step._calls) - 1 + step._running

        self._watched[value] = weakref.ref(x, gone)

    # --- backward and update ------------------------------------------------------------------------------------------

    def backward(self, outputs: Any, retain_grad: bool, loss_scale: Any) -> None:
        """Run a backward pass; the gradients that it begins with were there before."""
        if not self._in_backward:
            for node, gradient in outputs:
                if gradient is not None:
                    self._gradient[node] = self._own(
                        gradient.raw_array, "gradient of the loss", resident=True
                    )
        super().backward(outputs, retain_grad, loss_scale)

    def _backward_step(self, function: Any, grads: Any) -> list[Any]:
        number = function._stowplan.number
        operator = self._operators[number]
        call = _Call(f"{function.label}'", Phase.BACKWARD, ("backward", number))
        read = [operator.reads[index] for index in function._input_indexes_to_retain or ()]
        read += [operator.writes[index] for index in function._output_indexes_to_retain or ()]
        read += operator.hidden.values()
        read += [self._gradient[node()] for node in function.outputs if node() in self._gradient]
        call.reads.update(dict.fromkeys(read))
        touched = self._metered(call, lambda: super(RecordingStep, self)._backward_step(function, grads))
        for node in touched:
            gradients = grads.get_as_list(node)
            if gradients:
                self._take_gradient(call, node, gradients[0].raw_array)
                terms = sum(one is node for one in function.inputs)
                self._terms.setdefault(node, []).extend([len(self._calls) - 1] * terms)
        for node in function.inputs:
            if is_parameter(node):
                self._readers[id(node)].append(len(self._calls) - 1)
        self._operators[number] = replace(operator, backward=len(self._calls) - 1)
        return list(touched)

    def _bring_back(self, function: Any) -> None:
        if not self._running:
            super()._bring_back(function)
            return
        self.meter.runs(-1)
        super()._bring_back(function)
        self.meter.runs(len(self._calls))

    def _take_gradient(self, call: _Call, node: Any, array: Any) -> None:
        """Record how a gradient was made: a first term, a sum in the same array, or a sum in a new array."""
        old = self._gradient.get(node)
        seen, owner = self._owner.get(id(_root(array)), (None, -1))
        same = seen is not None and seen() is _root(array)
        if old is not None and same and self._recorded[owner].storage == self._recorded[old].storage:
            call.writes.append(old)
            return
        new = self._write(call, array, f"gradient for {call.label} {call.part[1]}")
        self._first[new] = len(self._calls) - 1
        if old is not None:
            call.reads[old] = None
        self._gradient[node] = new

    def _finish_leaf(self, node: Any, grads: Any, loss_scale: Any) -> None:
        value = self._gradient.get(node)
        param = node.get_variable_or_none()
        if value is None or self._early is None or self.nested or not self._early.takes(param):
            if value is not None:
                self._recorded[value].held = _TO_THE_END
            super()._finish_leaf(node, grads, loss_scale)
            return
        call = _Call(f"update {param.name or ''}".strip(), Phase.UPDATE, ("update", id(node)))
        call.reads.update(dict.fromkeys([value, self._of_node[node]]))
        call.after += self._readers[id(node)]
        self._metered(call, lambda: super(RecordingStep, self)._finish_leaf(node, grads, loss_scale))
        if self._early.takes(param):
            self._recorded[value].held = _TO_THE_END

    def update_rest(self, update: Callable[[], None]) -> None:
        """Update the remaining parameters, and record that as one operator."""
        call = _Call("update", Phase.UPDATE, ("update", 0))
        call.reads.update(
            dict.fromkeys(
                value for value in self._gradient.values() if self._recorded[value].held == _TO_THE_END
            )
        )
        call.after += [number for numbers in self._readers.values() for number in numbers]
        began = self._clock()
        self._metered(call, lambda: super(RecordingStep, self).update_rest(update))
        self.seconds.update[0] = self._clock() - began

    def _metered(self, call: _Call, run: Callable[[], Any]) -> Any:
        self.meter.runs(len(self._calls))
        self._running = True
        try:
            return run()
        finally:
            self._running = False
            self.meter.runs(-1)
            self._calls.append(call)

    # --- the graph ----------------------------------------------------------------------------------------------------

    def recording(self) -> Recording:
        """Return the recording, after the step, when the meter has been left."""
        rises = self.meter.rises(len(self._calls)).tolist()
        for value in self._alive:
            self._recorded[value].held = _TO_THE_END
        self._forget_what_is_not_left_again()
        rows: list[_Call] = []
        workspace = []
        for number, (call, rise) in enumerate(zip(self._calls, rises, strict=True)):
            if call.part == _LEFT and not call.writes:
                continue
            if call.outside:
                rows.append(_Call(f"for {call.label}", Phase.FORWARD, ("", 0), writes=call.outside))
                workspace.append(0)
            call.row = len(rows)
            rows.append(call)
            made = sum(
                self._recorded[v].size for v in {*call.writes, *call.outside} if self._maker(v, number)
            )
            workspace.append(max(0, rise - made))
        last = len(rows) - 1
        sums: dict[int, list[int]] = {}
        for numbers in self._terms.values():
            if len(numbers) >= 3:  # a sum of three or more depends on its order
                for before, later in pairwise(dict.fromkeys(numbers)):
                    sums.setdefault(later, []).append(before)
        after = [
            sorted({self._calls[i].row for i in (*row.after, *sums.get(number, ()))})
            for number, row in _numbered(rows, self._calls)
        ]
        held = [
            -1 if v.held < 0 else last if v.held == _TO_THE_END or not self._calls else self._row(v.held)
            for v in self._recorded
        ]
        graph = StepGraph(
            [row.reads for row in rows],
            [row.writes for row in rows],
            [v.size for v in self._recorded],
            [v.storage for v in self._recorded],
            after=after,
            phase=[row.phase for row in rows],
            workspace=workspace,
            repeatable=[row.repeatable for row in rows],
            resident=[v.resident for v in self._recorded],
            held=held,
            packed=[v.packed for v in self._recorded],
            label=[row.label for row in rows],
            name=[v.name for v in self._recorded],
        )
        structure = Structure(
            tuple(
                replace(
                    operator,
                    forward=self._calls[operator.forward].row,
                    backward=-1 if operator.backward < 0 else self._calls[operator.backward].row,
                )
                for operator in self._operators
            )
        )
        recording = Recording(structure, graph, tuple(row.part for row in rows))
        return replace(recording, graph=recording.with_seconds(self.seconds))

    def _forget_what_is_not_left_again(self) -> None:
        """Leave out gradients of the step before whose parameters have none now: the next step begins without them."""
        for value, param in self._left.items():
            if param.grad is None:
                self._calls[0].writes.remove(value)
                self._recorded[value] = _Value(self._recorded[value].name, 0, value, 0, resident=True)

    def _maker(self, value: int, number: int) -> bool:
        """Whether this call is the first that writes a value."""
        return self._first.get(value, number) == number

    def _row(self, call: int) -> int:
        return self._calls[min(call, len(self._calls) - 1)].row


def _numbered(rows: list[_Call], calls: list[_Call]) -> list[tuple[int, _Call]]:
    """Give each row the number of its call, -1 if it has none."""
    numbers = {call.row: number for number, call in enumerate(calls)}
    return [(numbers.get(row, -1), one) for row, one in enumerate(rows)]


def _root(array: Any) -> Any:
    """Return the array that owns the memory."""
    while isinstance(getattr(array, "base", None), type(array)):
        array = array.base
    return array
