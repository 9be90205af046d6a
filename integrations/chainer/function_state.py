"""What a step notes on a function that it applies: one object, in one attribute of Chainer's node.

A state belongs to one step. It goes with its function, when the graph is freed; a later step that meets it sees that it
is none of its own (`state_of`), and takes neither its number, which counts that step's operators, nor its names. It
tells which arrays the function's backward step reads (`read_by_backward`), and whether they are there (`is_complete`).

A step frees or packs a function's hidden arrays, those in its attributes, when the next operator begins (`Hiding`).
Until then the function's caller may read them: `F.dropout` returns its mask, SegNet unpools by the indexes by which it
pooled. They stay where the program still refers to the function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import chainer
from chainer import variable

from .rerun import get_hidden, old_style, set_hidden

EXACT_COUNTS = sys.version_info < (3, 14)
"""Whether `sys.getrefcount` proves that nothing else refers to an object: later versions leave out borrowed ones."""


@dataclass(slots=True)
class FunctionState:
    """The state of a function.

    Attributes
    ----------
    step
        The token of the step that applied it.
    number
        Forward operators of the step before it.
    settings
        Chainer's configuration when it was applied, if it is to run again.
    made
        How many of its inputs other functions had made when it was applied, where it may run again.
    repeatable
        Whether it may run again, as a trial found; None: there was none, and its class decides.
    packed
        The packed form of hidden arrays, by name.
    evicted
        The values of hidden arrays that were evicted, by name.
    reads, reads_outputs
        The indexes of the inputs and outputs whose arrays its backward step reads, each once: those that it retains,
        and those that code of the program's may read.
    cleared
        The names of hidden arrays that are freed, and that only running it again brings back.
    """

    step: int
    number: int
    settings: dict[str, Any] | None = None
    made: int = 0
    repeatable: bool | None = None
    reads: dict[int, None] = field(default_factory=dict)
    reads_outputs: dict[int, None] = field(default_factory=dict)
    packed: dict[str, Any] = field(default_factory=dict)
    evicted: dict[str, int] = field(default_factory=dict)
    cleared: set[str] = field(default_factory=set)


def state_of(function: Any, step: int) -> FunctionState | None:
    """Return the state that this step gave a function; None: another step, or none, applied it."""
    state: FunctionState | None = getattr(function, "_stowplan", None)
    return state if state is not None and state.step == step else None


def retained_outputs(function: Any) -> list[tuple[int, Any]]:
    """Return the indexes and arrays of the outputs that a function retains."""
    return [
        *zip(function._output_indexes_to_retain or (), function._retained_output_data or (), strict=False)
    ]


def drop_outputs(function: Any, drops: Callable[[int, Any], bool]) -> None:
    """Let a function keep no more those of its retained outputs whose index and array this says to drop."""
    if function._retained_output_data is not None:
        pairs = zip(function._output_indexes_to_retain, function._retained_output_data, strict=True)
        function._retained_output_data = tuple([None if drops(*pair) else pair[1] for pair in pairs])


def fill_output(function: Any, index: int, array: Any) -> None:
    """Give a retained output to its function, whose node for it is gone."""
    data = function._retained_output_data
    if data is not None and index in function._output_indexes_to_retain:
        place = list(function._output_indexes_to_retain).index(index)
        if data[place] is None:
            function._retained_output_data = (*data[:place], array, *data[place + 1 :])


# --- arrays that go when the next operator begins ---------------------------------------------------------------------


class Hiding:
    """The hidden arrays of the last function that was applied.

    Attributes
    ----------
    on_held
        Called with each function whose hidden arrays stay, as the program refers to it.
    """

    def __init__(self) -> None:
        self.on_held: Callable[[Any], object] = bool
        self._last: tuple[Any, Callable[[Any], None]] | None = None

    def later(self, function: Any, hide: Callable[[Any], None]) -> None:
        """Have a function called with this one when the next operator begins; it must not refer to it."""
        self._last = function, hide

    def hide(self) -> None:
        """Let the arrays go: an operator, or a backward pass, begins."""
        if self._last is None:
            return
        (function, hide), self._last = self._last, None
        own = old_style(function)
        nodes = [node for output in function.outputs or () if (node := output()) is not None]
        known = sum(node.creator_node is function for node in nodes)
        # Beside these, this name and the argument; of what an adapter wraps: the adapter, this name and the argument.
        is_alone = sys.getrefcount(function) <= known + 2 and (own is None or sys.getrefcount(own) <= 3)
        if is_alone and EXACT_COUNTS:
            hide(function)
        else:
            self.on_held(function)

    def close(self) -> None:
        """Forget the function."""
        self._last = None


def pack(function: Any, name: str, packed: Any) -> None:
    """Put a hidden array into its packed form; None: it has none that gains."""
    if packed is not None:
        function._stowplan.packed[name] = packed
        set_hidden(function, name, None)


def clear(function: Any, names: Iterable[str]) -> None:
    """Free hidden arrays that only running the function again brings back."""
    for name in names:
        function._stowplan.cleared.add(name)
        set_hidden(function, name, None)


# --- what a backward step reads ---------------------------------------------------------------------------------------


def note_reads(functions: list[Any]) -> None:
    """Note what the program's code may read in a backward step: inputs and outputs that Chainer's nodes have arrays of.

    The program's code is that of its own functions, and, for all functions, that of its function hooks.
    """
    hooked = not all(map(_is_chainers, chainer.get_function_hooks().values()))
    own = [one for one in functions if hooked or _has_code_of_its_own(one)]
    retained = {node for one in functions for node in read_by_backward(one)} if own else {}
    for one in own:
        if (state := getattr(one, "_stowplan", None)) is not None:
            state.reads.update({k: None for k, node in enumerate(one.inputs) if node in retained})
            state.reads_outputs.update({k: None for k, node in enumerate(one.outputs) if node() in retained})


def _has_code_of_its_own(function: Any) -> bool:
    hooks = function.local_function_hooks.values() if function._n_local_function_hooks else ()
    return not (_is_chainers(old_style(function) or function) and all(map(_is_chainers, hooks)))


def _is_chainers(one: Any) -> bool:
    return type(one).__module__.startswith("chainer.")


def read_by_backward(function: Any) -> list[Any]:
    """Return the nodes whose arrays a function's backward step reads: inputs, and its own outputs that are alive."""
    state = getattr(function, "_stowplan", None)  # None: no step has applied it
    reads = function._input_indexes_to_retain if state is None else state.reads
    nodes = [function.inputs[index] for index in reads or ()]
    for index in (function._output_indexes_to_retain if state is None else state.reads_outputs) or ():
        node = function.outputs[index]()
        if node is not None:
            nodes.append(node)
    return nodes


def is_complete(function: Any) -> bool:
    """Whether nothing has to be brought back for a function's backward step: all is where Chainer has it."""
    state = function._stowplan
    if state.packed or state.evicted or state.cleared:
        return False
    for index in state.reads:
        if function.inputs[index]._data is None:
            return False
    return all(array is not None for array in function._retained_output_data or ())


def has_all(function: Any, state: FunctionState) -> bool:
    """Whether all arrays that the backward step of a function reads are in memory."""
    hidden = {*state.packed, *state.evicted, *state.cleared}
    arrays = [*map(array_at, read_by_backward(function)), *(function._retained_output_data or ())]
    arrays += [get_hidden(function, name) for name in hidden]
    return all(array is not None for array in arrays)


def array_at(node: Any) -> Any:
    """Return a node's array: retained, or that of a variable the program holds; None if it is gone."""
    if node._data is not None:
        return node._data
    holder = node._variable()
    return None if holder is None else holder._data[0]


def array_of(value: Any) -> Any:
    """Return the array of a variable; an array as it is."""
    return value._data[0] if isinstance(value, variable.Variable) else value
