"""Time the operators of a running step, and record it as a step graph: values read and written, bytes, seconds.

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

import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import chainer
import numpy as np

from ..profiler.unbroken import WeakKeys
from ..scheduling import Phase, StepGraph
from . import bit_packing
from .execution import ScheduledStep
from .graph_builder import LEFT, TO_THE_END, Call, GraphBuilder, Value, root_of
from .meter import Meter
from .optimizer_in_backward import gradient_of
from .parameter_swap import swapped
from .rerun import DRAWN, held_arrays, hidden_arrays, is_idempotent, rebuildable, settings
from .schedule_follower import Operator, Structure, is_parameter, kind_of, leaf_of

Seconds = dict[tuple[str, int], float]
"""Seconds of a step's operators by `Call.part`: what runs, and its number, or the id of a parameter's node."""


def least(a: Seconds, b: Seconds) -> Seconds:
    """Return the smaller seconds of two steps of one structure: a noisy machine only adds."""
    return {part: min(seconds, b.get(part, seconds)) for part, seconds in a.items()}


class TimedStep(ScheduledStep):
    """A step that times each operator; what is brought back before it counts apart.

    Parameters
    ----------
    clock
        Returns seconds; on a device it waits for the kernels running there (`meter.clock_for`).
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter, **options: Any) -> None:
        super().__init__(**options)
        self.seconds: Seconds = {}
        self._clock = clock
        self._brought_back = 0.0  # seconds

    def apply(self, function: Any, inputs: Any) -> Any:
        """Apply a function, and time it."""
        began = self._clock()
        outputs = super().apply(function, inputs)
        if function.inputs is not None:
            self.seconds["forward", self.count] = self._clock() - began
        return outputs

    def backward_step(self, function: Any, grads: Any) -> list[Any]:
        """Run one function's backward step, and time it."""
        began = self._clock()
        touched = super().backward_step(function, grads)
        number = function._stowplan.number
        self.seconds["backward", number] = self._clock() - began - self._brought_back
        return touched

    def _bring_back(self, function: Any) -> None:
        began = self._clock()
        super()._bring_back(function)
        self._brought_back = self._clock() - began

    def finish_leaf(self, node: Any, grads: Any, loss_scale: Any) -> None:
        """Finish a leaf, and time its update."""
        began = self._clock()
        super().finish_leaf(node, grads, loss_scale)
        self.seconds["update", id(node)] = self._clock() - began


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
        The key of the seconds of each operator of the graph: ``"forward", number``; ``"backward", number``;
        ``"update", id of the parameter's node``, ``0`` for the rest of them; ``"", 0`` or ``1``, which have none.
    passes
        Backward passes. The program runs what stands between them, so no operator passes from one to another.
    """

    structure: Structure
    graph: StepGraph
    parts: tuple[tuple[str, int], ...]
    passes: int = 1

    def with_seconds(self, seconds: Seconds) -> StepGraph:
        """Return the graph with these seconds."""
        return self.graph.with_seconds(np.array([seconds.get(part, 0.0) for part in self.parts]))


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
    """

    def __init__(
        self, meter: Meter, resident: Iterable[Any], parameters: Iterable[Any] = (), **options: Any
    ) -> None:
        super().__init__(**options)
        self.meter = meter
        self._graph = GraphBuilder()
        self._operators: list[Operator] = []
        self._value_of: WeakKeys[int] = WeakKeys()  # of each node that this step has seen
        self._gradient: dict[Any, int] = {}  # of each node, the value of its gradient
        self._readers: dict[int, list[int]] = {}  # by id of a parameter's node: calls
        self._left: dict[int, Any] = {}  # by value of a gradient that is there before the step: its parameter
        self.values.on_held = lambda node: self._graph.hold(self._value_of[node])
        self.values.hiding.on_held = self._hold_hidden
        for array in resident:
            self._graph.add(array, "persistent", resident=True)
        before = Call("gradients of the step before", Phase.FORWARD, LEFT)
        for param in parameters:
            gradient = gradient_of(param)
            if gradient is not None:
                root = root_of(gradient)
                value = self._graph.write(before, root, f"gradient of {param.name}")
                self._graph.watch(root, value)
                self._left[value] = param
        if self._left:
            self._graph.begin(before)

    # --- forward ------------------------------------------------------------------------------------------------------

    def apply(self, function: Any, inputs: Any) -> Any:
        """Apply a function, and record it."""
        inputs = [chainer.as_variable(x) for x in inputs]
        known = list(held_arrays(function).values())
        with self._metered(len(self._graph.calls)):
            outputs = super().apply(function, inputs)
        if function.inputs is None:
            return outputs
        call = Call(function.label, Phase.FORWARD, ("forward", self.count), beside=self._beside)
        reads = [self._input(call, x) for x in inputs]
        xs, ys = [x._data[0] for x in inputs], [y._data[0] for y in outputs]
        writes = [self._graph.write(call, y, f"{call.label} {self.count}.{i}") for i, y in enumerate(ys)]
        hidden = {
            name: self._hide(call, array, f"{call.label} {self.count}.{name}")
            for name, array in hidden_arrays(function, [*known, *xs, *ys]).items()
        }
        number = self._graph.begin(call, reads)
        for y, value in zip(outputs, writes, strict=True):
            self._value_of[y.node] = value
            self._graph.watch(y, value)
        self._find_out(function, call, xs, ys, hidden)
        for x in inputs:
            self._readers.setdefault(id(x.node), []).append(number)
        leaves = {v: leaf_of(x.node) for x, v in zip(inputs, reads, strict=True) if x.creator_node is None}
        kind = kind_of(function, outputs)
        self._operators.append(Operator(kind, tuple(reads), tuple(writes), leaves, hidden, number, -1))
        return outputs

    def _hold_hidden(self, function: Any) -> None:
        for value in self._operators[function._stowplan.number].hidden.values():
            self._graph.hold(value)

    def _input(self, call: Call, x: Any) -> int:
        """Return the value of an input; a new one if no operator wrote it."""
        if x.node in self._value_of:
            return self._value_of[x.node]
        number = self._graph.add(x._data[0], x.name or ("parameter" if is_parameter(x.node) else "input"))
        self._value_of[x.node] = number
        value = self._graph.values[number]
        if value.storage == number:
            # A slice of a data set that the program has: the rest of the set is not part of the step.
            # A swapped parameter counts where it is in memory: beside the operators that use it.
            value.size = value.packed = 0 if swapped(x) else int(x._data[0].nbytes)
        storage = self._graph.values[value.storage]
        storage.resident |= is_parameter(x.node)
        if not storage.resident:
            self._graph.hold(number)  # by the caller
            call.outside.append(number)
        return number

    def _hide(self, call: Call, array: Any, name: str) -> int:
        """Return the new value of a hidden array."""
        number = self._graph.write(call, array, name)
        value = self._graph.values[number]
        packed = bit_packing.pack(array) if value.storage == number and root_of(array) is array else None
        if packed is not None:
            value.packed = packed.nbytes
        return number

    def _find_out(self, function: Any, call: Call, xs: Any, ys: Any, hidden: dict[str, int]) -> None:
        """Run the function again to see if it may be; hidden arrays that it cannot make again count as from outside."""
        config = settings()
        call.repeatable = function._stowplan.repeatable = is_idempotent(function, xs, ys, config)
        if not call.repeatable or not hidden:
            return
        remade = rebuildable(function, xs, ys, hidden, config) - DRAWN.get(type(function), frozenset())
        outside = [value for name, value in hidden.items() if name not in remade]
        call.writes = [value for value in call.writes if value not in outside]
        call.outside += outside
        call.reads.update(dict.fromkeys(outside))

    # --- backward and update ------------------------------------------------------------------------------------------

    def backward(self, outputs: Any, retain_grad: bool, loss_scale: Any) -> None:
        """Run a backward pass; the gradients that it begins with existed before."""
        if not self._in_backward:
            for node, gradient in outputs:
                if gradient is not None:
                    value = self._graph.add(gradient.raw_array, "gradient of the loss", resident=True)
                    self._gradient[node] = value
        super().backward(outputs, retain_grad, loss_scale)

    def backward_step(self, function: Any, grads: Any) -> list[Any]:
        """Run one function's backward step, and record it."""
        number = function._stowplan.number
        operator = self._operators[number]
        read = [operator.reads[index] for index in function._input_indexes_to_retain or ()]
        read += [operator.writes[index] for index in function._output_indexes_to_retain or ()]
        read += operator.hidden.values()
        read += [self._gradient[node()] for node in function.outputs if node() in self._gradient]
        call = Call(f"{function.label}'", Phase.BACKWARD, ("backward", number))
        backward = self._graph.begin(call, read)
        with self._metered(backward):
            touched = super().backward_step(function, grads)
        call.beside = self._beside
        for node in touched:
            gradients = grads.get_as_list(node)
            if gradients:
                self._take_gradient(call, node, gradients[0].raw_array)
                self._graph.add_terms(node, backward, sum(one is node for one in function.inputs))
        for node in function.inputs:
            if is_parameter(node):
                self._readers[id(node)].append(backward)
        self._operators[number] = replace(operator, backward=backward)
        return touched

    def _bring_back(self, function: Any) -> None:
        self.meter.runs(-1)
        super()._bring_back(function)
        self.meter.runs(len(self._graph.calls) - 1)

    def _tables(self, grads: Any) -> list[Container[Any]]:
        return [*super()._tables(grads), self._gradient, self._graph.terms]

    def wrote_over(self, array: Any) -> None:
        """Have the call come after all that read what was there."""
        graph, call = self._graph, self._graph.calls[-1]
        storage = graph.storage_of(array)
        for number, other in enumerate(graph.calls[:-1]):
            if any(graph.values[value].storage == storage for value in other.reads):
                call.after.append(number)

    def _take_gradient(self, call: Call, node: Any, array: Any) -> None:
        """Record how a gradient was made: a first term, a sum in the same array, or a sum in a new array."""
        old = self._gradient.get(node)
        if old is not None and self._graph.storage_of(array) == self._graph.values[old].storage:
            call.writes.append(old)
            return
        if old is not None:
            call.reads[old] = None
        self._gradient[node] = self._graph.write(call, array, f"gradient for {call.label} {call.part[1]}")

    def finish_leaf(self, node: Any, grads: Any, loss_scale: Any) -> None:
        """Finish a leaf; an early update is an operator."""
        value = self._gradient.get(node)
        if value is None or not self._may_update(node):
            if value is not None and node not in self._consumed:
                self._graph.hold(value)
            super().finish_leaf(node, grads, loss_scale)
            return
        param = node.get_variable_or_none()
        call = Call(f"update {param.name or ''}".strip(), Phase.UPDATE, ("update", id(node)))
        call.after += self._readers[id(node)]
        with self._metered(self._graph.begin(call, [value, self._value_of[node]])):
            super().finish_leaf(node, grads, loss_scale)
        call.beside = self._beside
        if self._may_update(node):
            self._graph.hold(value)

    def update_rest(self, update: Callable[[], None]) -> None:
        """Update the remaining parameters, and record that as one operator."""
        call = Call("update", Phase.UPDATE, ("update", 0))
        call.after += [number for numbers in self._readers.values() for number in numbers]
        values = self._graph.values
        reads = [each for each in self._gradient.values() if values[each].held == TO_THE_END]
        began = self._clock()
        with self._metered(self._graph.begin(call, reads)):
            super().update_rest(update)
        self.seconds["update", 0] = self._clock() - began

    @property
    def _beside(self) -> int:
        parameters = self.values.parameters
        return 0 if parameters is None else parameters.bytes_used

    @contextmanager
    def _metered(self, call: int) -> Iterator[None]:
        """Count requests as those of the call with this number."""
        self.meter.runs(call)
        try:
            yield
        finally:
            self.meter.runs(-1)

    # --- the graph ----------------------------------------------------------------------------------------------------

    def recording(self) -> Recording:
        """Return the recording, after the step, when the meter has been left."""
        calls = self._graph.calls
        for value, param in self._left.items():
            if gradient_of(param) is None:  # the next step begins without it
                calls[0].writes.remove(value)
                self._graph.values[value] = Value(self._graph.values[value].name, 0, value, 0, resident=True)
        graph, rows = self._graph.build(self.meter.rises(len(calls)).tolist())
        operators = [
            replace(
                operator,
                forward=calls[operator.forward].row,
                backward=-1 if operator.backward < 0 else calls[operator.backward].row,
            )
            for operator in self._operators
        ]
        recording = Recording(
            Structure(tuple(operators)), graph, tuple(row.part for row in rows), self.passes
        )
        return replace(recording, graph=recording.with_seconds(self.seconds))
