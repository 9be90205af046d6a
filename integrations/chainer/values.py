"""Free the arrays of one step early, and bring them back when they are read.

Each decision to free an array is local, and all arrays that an operator's backward step reads are brought back before
it: fetched, unpacked, or rebuilt along the real graph, even against the directions::

    after a forward operator     free the arrays that the directions drop, pack masks, evict values; without directions
                                 free what `sparing` has no room for
    before a backward step       bring back the arrays that it reads; run their makers again, in order, if need be
    after a backward step        free the arrays that no other backward step and no recomputation reads

A function runs again only if it was seen to give the same bits, and only until its parameters are updated.
"""

from __future__ import annotations

import collections
import sys
import weakref
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Any

from ..common.errors import ScheduleError
from ..profiler.unbroken import WeakKeys
from . import bit_packing
from .evictions import BACKWARD, Evictions, Moment, Swap
from .function_state import (
    EXACT_COUNTS,
    Hiding,
    array_at,
    array_of,
    clear,
    drop_outputs,
    fill_output,
    is_complete,
    pack,
    read_by_backward,
    retained_outputs,
    state_of,
)
from .parameter_swap import ParameterSwap, swapped
from .rerun import (
    DRAWN,
    get_hidden,
    hidden_arrays,
    may_run_again,
    rerun,
    set_hidden,
    settings,
)
from .schedule_follower import Directions, Follower
from .sparing import Sparing
from .written import Written

_LEAVE_OUT = (
    "a program that does this now and then leaves the step out: `with scheduler.step(schedule=False)`"
)


class StepValues:
    """The values of a step: which of them are in memory.

    Parameters
    ----------
    step
        The token of the step.
    follower
        Finds the directions; None: there are none, and only arrays that no backward step reads any more are freed.
    swap
        The place that values are evicted to; None: they stay.
    sparing
        Decides what is kept where there are no directions; None: all that a backward step reads.
    written
        Knows what arrays held when operators read them; None: nothing does, so no operator may run again.

    Attributes
    ----------
    directions
        Those for the operators so far; None: there are none.
    evictions
        The values that are out of memory.
    parameters
        What has parameters out of memory while nothing uses them; None: they stay.
    on_held
        Called with each node whose array stays as the program refers to it.
    hiding
        Hidden arrays that go when the next operator begins.
    recomputed
        Operators that ran again.
    readers, uses
        How often functions of the step refer to each node; how many backward steps to come read it.
    updated
        The number of forward operators before the update of each parameter updated in this step, by the parameter's id.
    """

    def __init__(
        self,
        step: int,
        follower: Follower | None,
        swap: Swap | None,
        sparing: Sparing | None,
        written: Written | None,
    ) -> None:
        self._step = step
        self._follower = follower
        self.directions = None if follower is None else follower.directions
        self.sparing = sparing
        self._written = written
        self.evictions = Evictions(swap)
        self.parameters: ParameterSwap | None = None
        self.on_held: Callable[[Any], object] = bool
        self.recomputed = 0
        self.updated: dict[int, int] = {}
        self.uses: collections.Counter[Any] = collections.Counter()
        self.readers: collections.Counter[Any] = collections.Counter()
        self._nodes: dict[int, weakref.ref[Any]] = {}  # by number of the value
        self._out: WeakKeys[int] = WeakKeys()  # evicted, by node
        self.hiding = Hiding()
        self._place = -1  # of the last backward step that is over

    def close(self) -> None:
        """Free everything, without waiting for garbage collection."""
        self.hiding.close()
        self.on_held = self.hiding.on_held = bool  # which may refer to the step
        self.uses.clear()
        self.readers.clear()
        self._nodes.clear()
        self.evictions.close()

    def reach(self, moment: Moment) -> None:
        """Let the values go, and fetch those, for which this is the moment."""
        if self.directions is not None:
            self.evictions.leave(self.directions.leaves.get(moment, ()))
            self.evictions.fetch(self.directions.fetched.get(moment, ()))

    # --- after a forward operator -------------------------------------------------------------------------------------

    def after_forward(self, function: Any, inputs: Any, outputs: Any) -> None:
        """Free the arrays that the directions do not keep."""
        directions, state = self.directions, function._stowplan
        assert directions is not None
        operator = directions.structure.operators[state.number]
        local = directions.operators[state.number]
        for value, node, array in [
            *zip(operator.reads, function.inputs, map(array_of, inputs), strict=True),
            *((value, y.node, y._data[0]) for value, y in zip(operator.writes, outputs, strict=True)),
        ]:
            self._nodes[value] = weakref.ref(node)
            if value in directions.dropped:
                node._data = None
            elif value in directions.last_place:
                node._data = array
        drop_outputs(function, lambda index, _: operator.writes[index] in directions.dropped)
        state.repeatable = local.repeatable
        if local.again:
            state.settings = settings()
        self.hiding.later(function, partial(self._hide, directions))
        for value in directions.evicted.get(state.number, ()):
            self._evict(value)

    def _hide(self, directions: Directions, function: Any) -> None:
        local, state = directions.operators[function._stowplan.number], function._stowplan
        clear(function, local.clear)
        for name in local.pack:
            array = get_hidden(function, name)
            pack(function, name, None if array is None else bit_packing.pack(array))
        for name, value in local.evict:
            array = get_hidden(function, name)
            if array is not None and self.evictions.begin(value, array):
                state.evicted[name] = value
                set_hidden(function, name, None)

    def _evict(self, value: int) -> None:
        """Start to write a value's array, which the function that made it may retain, too, and let go of it."""
        node: Any = self._nodes.get(value, _no_node)()
        array = None if node is None else array_at(node)
        if array is not None and self.evictions.begin(value, array):
            self._out[node] = value
            node._data = None
            if node.creator_node is not None:
                drop_outputs(node.creator_node, lambda _, data: data is array)

    # --- before a backward step ---------------------------------------------------------------------------------------

    def count_readers(self, functions: Iterable[weakref.ref[Any]]) -> None:
        """Count how often functions refer to each node; a backward pass begins."""
        self.readers.clear()
        for reference in functions:
            function = reference()
            for node in () if function is None else function.inputs or ():
                self.readers[node] += 1

    def before_backward(self, function: Any) -> None:
        """Bring back all arrays that a function's backward step reads."""
        self.reach((BACKWARD, self._place + 1))
        if self.directions is not None or self.sparing is not None or not is_complete(function):
            self._restore(function)
        if self.parameters is not None:
            self._fetch_parameters(function, self.parameters)

    def _fetch_parameters(self, function: Any, parameters: ParameterSwap) -> None:
        """Have the parameters in memory that a backward step reads, where Chainer expects them."""
        retained = [function.inputs[index] for index in function._input_indexes_to_retain or ()]
        found = [param for node in retained if swapped(param := node.get_variable_or_none())]
        parameters.use(found)
        for param in found:
            param._node._data = param._data.array

    def _restore(self, function: Any) -> None:
        self._unpack(function)
        for index in function._stowplan.reads:
            node = function.inputs[index]
            if node._data is None and not _is_swapped(node):
                node._data = self._there(node)
        self._fill_outputs(function)
        makers = self._makers(function)
        if makers:
            self._rebuild(makers, set(read_by_backward(function)))
            self._fill_outputs(function)
            self._unpack(function)

    def require_complete(self, functions: Iterable[Any]) -> None:
        """Raise where a pass by these functions would stop for want of an array: before it updates a parameter."""
        makers = []
        for function in functions:
            if not is_complete(function):
                makers += self._makers(function)
        self._closure(makers)

    def _makers(self, function: Any) -> list[Any]:
        """Return the functions that make again what a function's backward step reads, as it is gone."""
        makers = self._made_by(function, [function.inputs[index] for index in function._stowplan.reads])
        return [*makers, function] if self._cleared(function) or self._outputs_missing(function) else makers

    def _made_by(self, function: Any, inputs: Iterable[Any]) -> list[Any]:
        """Return what made the inputs of a function that are gone."""
        makers = [node.creator_node for node in inputs if not self._is_there(node)]
        if None in makers:
            why = "is gone, and the program has cut off what made it (Variable.unchain)"
            raise ScheduleError(f"an input of {function.label} {why}; {_LEAVE_OUT}")
        return makers

    def _there(self, node: Any) -> Any:
        """Return a node's array: retained, that of a variable the program holds, or fetched; None if it is gone."""
        array = array_at(node)
        if array is None and node in self._out:
            array = node._data = self.evictions.take(self._out.pop(node))
        return array

    def _is_there(self, node: Any) -> bool:
        """Whether `_there` has the array of a node; nothing is fetched."""
        return _is_swapped(node) or node in self._out or array_at(node) is not None

    def _cleared(self, function: Any) -> bool:
        """Whether a hidden array is gone: cleared after the forward operator, or after a former backward step."""
        gone = [name for name in function._stowplan.cleared if get_hidden(function, name) is None]
        if DRAWN.get(type(function), frozenset()).intersection(gone):
            raise ScheduleError(f"{function.label} lost what it drew: a second backward pass; {_LEAVE_OUT}")
        return bool(gone)

    def _fill_outputs(self, function: Any) -> None:
        """Fill in retained outputs from their nodes, and the other way round."""
        for index, array in retained_outputs(function):
            node = function.outputs[index]()
            if node is not None:
                array = self._there(node) if array is None else array
                node._data = array if node._data is None else node._data
                fill_output(function, index, array)

    def _outputs_missing(self, function: Any) -> bool:
        """Whether a retained output is gone."""
        nodes = [function.outputs[index]() for index, array in retained_outputs(function) if array is None]
        return any(node is None or not self._is_there(node) for node in nodes)

    def _unpack(self, function: Any) -> None:
        """Bring back the packed and swapped hidden arrays of a function."""
        state = function._stowplan
        for name, packed in state.packed.items():
            if get_hidden(function, name) is None:
                set_hidden(function, name, bit_packing.unpack(packed))
        for name, value in state.evicted.items():
            if get_hidden(function, name) is None:
                set_hidden(function, name, self.evictions.take(value))

    def _rebuild(self, makers: list[Any], wanted: set[Any]) -> None:
        """Run functions again, and before them those whose outputs they read, if these are gone.

        The arrays of the nodes that are wanted are kept, and of those that later backward steps read.
        """
        again = self._closure(makers)
        order = sorted(again, key=lambda function: function._stowplan.number)
        readers = collections.Counter(node for function in order for node in function.inputs)
        temporary: dict[Any, Any] = {}
        for function in order:
            self._run_again(function, readers, temporary, wanted)
            if function not in makers:
                for name in function._stowplan.packed:
                    set_hidden(function, name, None)

    def _closure(self, makers: Iterable[Any]) -> set[Any]:
        """Return these functions, and those that make again what they read; raise unless all may run again."""
        again: set[Any] = set()
        stack = list(makers)
        if stack and self._written is None:
            raise ScheduleError(f"{stack[0].label} has lost its arrays: a second backward pass; {_LEAVE_OUT}")
        while stack:
            function = stack.pop()
            if function not in again:
                again.add(function)
                self._require_repeatable(function)
                stack += self._made_by(function, function.inputs)
        return again

    def _require_repeatable(self, function: Any) -> None:
        """Raise unless a function gives the same again."""
        self._cleared(function)
        state = state_of(function, self._step)
        given = [node for node in function.inputs if node.creator_node is None]
        if state is None or not (may_run_again(function) if state.repeatable is None else state.repeatable):
            why = "may not give the same"
        elif self.is_outdated(function):
            why = "its parameter has been updated"
        elif self._written is not None and not all(map(self._written.knows, given)):
            why = "a write on an input would not be seen"
        else:
            return
        raise ScheduleError(f"{function.label} would run again, and {why}; {_LEAVE_OUT}")

    def is_outdated(self, function: Any) -> bool:
        """Whether a parameter of a function was updated after the function ran."""
        state = state_of(function, self._step)
        number = -1 if state is None else state.number
        return any(self.updated.get(id(node.get_variable_or_none()), -1) > number for node in function.inputs)

    def _run_again(
        self, function: Any, readers: collections.Counter[Any], temporary: dict[Any, Any], wanted: set[Any]
    ) -> None:
        assert self._written is not None
        self._unpack(function)
        if self.parameters is not None:
            self.parameters.use(node.get_variable_or_none() for node in function.inputs)
        arrays = []
        for node in function.inputs:
            array = self._there(node)
            arrays.append(temporary[node] if array is None else array)
            if _is_swapped(node):
                self._written.require_same(node, arrays[-1])
        outputs = rerun(function, arrays, function._stowplan.settings)
        self.recomputed += 1
        del array, arrays
        if self.parameters is not None:
            self.parameters.unchanged_by(function)
        for node in function.inputs:
            readers[node] -= 1
            if readers[node] == 0:
                temporary.pop(node, None)
        for index, output in enumerate(function.outputs):
            node = output()
            if node is None:
                fill_output(function, index, outputs[index])
            elif node._data is None:
                if self.uses[node] > 0 or node in wanted or self._wanted(node, 1):
                    node._data = outputs[index]
                    self._written.forget(node)
                elif readers[node] > 0:
                    temporary[node] = outputs[index]

    # --- after a backward step ----------------------------------------------------------------------------------------

    def after_backward(self, function: Any, tables: list[Container[Any]]) -> None:
        """Free the arrays that the backward step of this function was the last to read.

        Parameters
        ----------
        function
            A `chainer.FunctionNode` whose backward step is over.
        tables
            Those of the backward pass that refer to nodes. Any other reference to a node is the program's. Then the
            node keeps the array that it has in plain Chainer.
        """
        self._place += 1
        for node in (read := read_by_backward(function)):
            self.uses[node] -= 1
        if function._retained_output_data is not None:
            function._retained_output_data = (None,) * len(function._retained_output_data)
        function._stowplan.packed.clear()
        clear(function, hidden_arrays(function))
        read += [] if self.sparing is None else self.sparing.release(function)
        if self.directions is not None:
            values = self.directions.released.get(self._place, ())
            read += [node for value in values if (node := self._nodes.get(value, _no_node)()) is not None]
        read = [node for node in read if self.uses[node] <= 0 and not self._wanted(node)]
        read += [node for output in function.outputs if (node := output()) is not None]
        done, read, node = dict.fromkeys(read), [], None
        for node in done:
            if node.creator_node is None:
                continue
            own = 3 + self.readers[node]  # 3: the dict, this name, and the argument
            for table in (self.uses, self.readers, *tables):
                own += node in table
            is_held = sys.getrefcount(node) > own or not EXACT_COUNTS  # the program refers to it, too
            if node in self.uses and is_held:
                node._data = array_at(node)  # as Chainer's node would have it
                self.on_held(node)
            else:
                node._data = None

    def _wanted(self, node: Any, after: int = 0) -> bool:
        """Whether a recomputation reads a node's array after so many more places; or may, without directions."""
        if self.sparing is not None and self.sparing.is_checkpoint(node):
            return True
        if self._follower is None or self.directions is None:
            return False
        value = self._follower.value_of(node)
        return self.directions.last_place.get(value, -1) > self._place + after


def _is_swapped(node: Any) -> bool:
    """Whether a node is a parameter's that is fetched when it is used."""
    return swapped(node.get_variable_or_none())


def _no_node() -> None:
    return None
