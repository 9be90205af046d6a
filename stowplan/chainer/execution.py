"""One step of Chainer's under a schedule: what is let go, when, and how it comes back.

Nothing here depends on the schedule for being right. Each decision to let an array go is local, and whatever an
operator's backward step reads is there when it runs, rebuilt along the real graph if need be::

    forward    after each operator   arrays that the schedule drops are let go, masks packed, values evicted
    backward   before each operator  what it reads is there: fetched, unpacked, or its makers run again, in order
               after each operator   what nobody reads any more is let go; gradients that are complete update their
                                     parameters

*Release* is the last of these without any schedule: what an operator retained goes when its backward step is over,
where Chainer keeps it until the loss goes. A sum of gradients is formed in the array of the first one, if nobody else
sees that array.
"""

from __future__ import annotations

import collections
import heapq
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..compat import enable_chainer
from ..errors import ScheduleError

enable_chainer()

import chainer  # noqa: E402 (mended first)
from chainer import _backprop_utils, variable  # noqa: E402
from chainer.functions.util.forget import Forget  # noqa: E402

from . import masks, seams  # noqa: E402
from .directions import Directions, Follower, Structure  # noqa: E402
from .early import EarlyUpdate  # noqa: E402
from .rerun import DRAWN, get_hidden, hidden_arrays, rerun, set_hidden, settings  # noqa: E402

__all__ = ["ScheduledStep"]

_LEAVE_OUT = (
    "a program that does this now and then leaves the step out: `with scheduler.step(schedule=False)`"
)


class ScheduledStep:
    """One step, from its first operator to its last update. Runs at the seams (`seams.running`).

    Parameters
    ----------
    release
        Whether what a backward step was the last to read goes.
    follower
        Finds the directions for the operators that come; None: there are none.

    Attributes
    ----------
    count
        Forward operators so far.
    recomputed
        Operators that ran again.
    walked_twice
        Whether two backward passes came by one operator.
    passes
        Backward passes so far.
    nested
        Whether an operator ran a backward pass of its own, which may reach parameters that no operator reads.
    before_backward, after_backward
        Called around each pass.
    """

    def __init__(self, *, release: bool = True, follower: Follower | None = None) -> None:
        self._release = release
        self._follower = follower
        self._early: EarlyUpdate | None = None
        self.count = 0
        self.recomputed = 0
        self.passes = 0
        self.walked_twice = False
        self.nested = False
        self.before_backward: Callable[[], None] | None = None
        self.after_backward: Callable[[], None] | None = None
        self._in_backward = False
        self._visited: set[int] = set()
        self._updated: set[int] = set()  # parameters, by id
        self._uses: collections.Counter[Any] = (
            collections.Counter()
        )  # of each node's array, by backward steps to come
        self._nodes: dict[int, weakref.ref[Any]] = {}  # by number of the value
        self._packed: dict[tuple[int, str], Any] = {}
        self._place = -1  # how many backward steps are over

    @property
    def releases(self) -> bool:
        """Whether what a backward step was the last to read goes."""
        return self._release

    @property
    def structure(self) -> Structure | None:
        """The structure that the whole step has had, of those that the follower knows; None: another one."""
        return None if self._follower is None else self._follower.structure

    @property
    def signature(self) -> int:
        """The same for steps of the same operators."""
        return 0 if self._follower is None else self._follower.signature

    def close(self) -> None:
        """Let go of the step's graph, without waiting for garbage collection."""
        self.before_backward = self.after_backward = self._early = None
        self._uses.clear()
        self._nodes.clear()
        self._packed.clear()

    # --- forward ------------------------------------------------------------------------------------------------------

    def forward(self, function: Any, inputs: Any) -> Any:
        """Apply a function; afterwards let go what the directions do not keep."""
        if self._in_backward or not chainer.config.enable_backprop:
            return seams.apply(function, inputs)
        outputs = self.apply(function, inputs)
        if function.inputs is None:
            return outputs
        function._stowplan = self.count
        self.count += 1
        if isinstance(function, Forget):
            self.nested = True
        if self._follower is not None:
            directions = self._follower.saw(function, inputs, outputs)
            if directions is not None:
                self._follow(directions, function, inputs, outputs)
        return outputs

    def apply(self, function: Any, inputs: Any) -> Any:
        """Apply a function as Chainer does."""
        return seams.apply(function, inputs)

    def _follow(self, directions: Directions, function: Any, inputs: Any, outputs: Any) -> None:
        operator = directions.operators[function._stowplan]
        for number, node, array in [
            *zip(operator.reads, function.inputs, map(_array_of, inputs), strict=True),
            *((number, y.node, y._data[0]) for number, y in zip(operator.writes, outputs, strict=True)),
        ]:
            self._nodes[number] = weakref.ref(node)
            if number in directions.dropped:
                node._data = None
            elif number in directions.kept:
                node._data = array
        if function._retained_output_data is not None:
            function._retained_output_data = tuple(
                None if operator.writes[index] in directions.dropped else data
                for index, data in zip(
                    function._output_indexes_to_retain, function._retained_output_data, strict=True
                )
            )
        if operator.again:
            function._stowplan_settings = settings()
        for name in operator.clear:
            set_hidden(function, name, None)
        for name in operator.pack:
            array = get_hidden(function, name)
            packed = None if array is None else masks.pack(array)
            if packed is not None:
                self._packed[function._stowplan, name] = packed
                set_hidden(function, name, None)

    # --- backward -----------------------------------------------------------------------------------------------------

    def updates(self, early: EarlyUpdate | None) -> None:
        """Have the coming backward pass update parameters; with None, have it not."""
        self._early = early

    def backward(self, outputs: Any, retain_grad: bool, loss_scale: Any) -> None:
        """Run a backward pass: Chainer's own, where arrays that are let go would be missed."""
        if self._in_backward:
            self.nested = True
            seams.backprop_to_all(outputs, retain_grad, loss_scale)
            return
        self.passes += 1
        if self.before_backward is not None:
            self.before_backward()
        self._in_backward = True
        try:
            if retain_grad or chainer.config.enable_backprop or not self._release:
                self._count_visits(outputs)
                seams.backprop_to_all(outputs, retain_grad, loss_scale)
            else:
                self._backward(outputs, loss_scale)
        finally:
            self._in_backward = False
            if self.after_backward is not None:
                self.after_backward()

    def before_backward_step(self, function: Any) -> None:
        """Have there what the backward step of one function reads."""
        number = getattr(function, "_stowplan", None)
        if number is not None and function.inputs is not None:
            self._ensure(function)

    def _count_visits(self, outputs: Any) -> None:
        for function in _reachable(outputs):
            number = getattr(function, "_stowplan", -1)
            self.walked_twice |= number in self._visited
            self._visited.add(number)

    def _backward(self, outputs: Any, loss_scale: Any) -> None:
        """As `chainer._backprop._backprop_to_all`, with the same sums in the same order."""
        functions = _reachable(outputs)
        readers: collections.Counter[Any] = collections.Counter()
        waiting: collections.Counter[Any] = collections.Counter()
        self._uses = collections.Counter()
        for function in functions:
            if not any(node.requires_grad for node in function.inputs):
                continue
            self._uses.update(_read_by_backward(function))
            for node in dict.fromkeys(function.inputs):
                if node.creator_node is None:
                    readers[node] += 1
                elif node.requires_grad:
                    waiting[node.creator_node] += 1
        order = None
        if self._follower is not None and not self.nested and not chainer.config.lazy_grad_sum:
            order = self._follower.order()
        candidates = _Candidates(order, waiting)
        grads = _backprop_utils.GradTable(accumulate_grad_inputs=True)
        leaves: dict[Any, None] = {}  # in an order that is the same in each step
        for node, gradient in outputs:
            grads.accumulate(node, gradient)
            if node.creator_node is None:
                leaves[node] = None
            else:
                candidates.add(node.creator_node)
        node = gradient = outputs = function = None
        functions.clear()
        while candidates:
            function = candidates.pop()
            if not any(node.requires_grad for node in function.inputs):
                _take_out_grads(function, grads)
                continue
            number = getattr(function, "_stowplan", -1)
            self.walked_twice |= number in self._visited
            self._visited.add(number)
            for node in self._backward_step(function, grads):
                if node.creator_node is None:
                    leaves[node] = None
                else:
                    candidates.add(node.creator_node)
            self._release_after(function)
            for node in dict.fromkeys(function.inputs):
                if node.creator_node is None:
                    readers[node] -= 1
                    if readers[node] == 0 and node in leaves and self._may_update(node):
                        leaves.pop(node)
                        self._finish_leaf(node, grads, loss_scale)
                elif node.requires_grad:
                    waiting[node.creator_node] -= 1
            node = function = None
        for node in leaves:
            self._finish_leaf(node, grads, loss_scale)
        grads.assert_no_grads()

    def _backward_step(self, function: Any, grads: Any) -> list[Any]:
        """Run one function's backward step; return the nodes that have got a gradient by it."""
        inputs = function.inputs
        targets = tuple(i for i, node in enumerate(inputs) if node.requires_grad)
        out_grad = _take_out_grads(function, grads)
        self._ensure(function)
        in_data = tuple(node.data for node in inputs)
        out_arrays = tuple(None if gradient is None else gradient.raw_array for gradient in out_grad)
        hooks = collections.OrderedDict(chainer.get_function_hooks())
        if function._n_local_function_hooks != 0:
            hooks.update(function.local_function_hooks)
        with chainer.using_device(chainer.backend.get_device_from_array(*_there(in_data, out_arrays))):
            for hook in hooks.values():
                hook.backward_preprocess(function, in_data, out_arrays)
            in_grad: dict[Any, Any] = collections.OrderedDict()
            for i in targets:
                if inputs[i] not in in_grad:
                    in_grad[inputs[i]] = grads.get_as_list(inputs[i])
            lazy, function.lazy_grad_sum = function.lazy_grad_sum, True
            try:
                seams.backprop_step(function, targets, out_grad, in_grad, chainer.is_debug())
            finally:
                function.lazy_grad_sum = lazy
            if not lazy:
                for gradients in in_grad.values():
                    _sum(gradients)
            for hook in hooks.values():
                hook.backward_postprocess(function, in_data, out_arrays)
        touched = []
        for node, gradients in in_grad.items():
            if gradients:
                for gradient in gradients:
                    if gradient is not None:
                        variable._check_grad_type(function, node, True, gradient.raw_array)
                touched.append(node)
        return touched

    def update_rest(self, update: Callable[[], None]) -> None:
        """Run what updates the parameters that were not updated early."""
        update()

    def _may_update(self, node: Any) -> bool:
        param = node.get_variable_or_none()
        return self._early is not None and not self.nested and self._early.takes(param)

    def _finish_leaf(self, node: Any, grads: Any, loss_scale: Any) -> None:
        """Hand a complete gradient to its variable; if it is a parameter's that may be updated early, do that."""
        target = node.get_variable_or_none()
        gradient = grads.pop(node)
        if target is None:
            return
        target._set_grad_var_without_check(gradient)
        target._loss_scale = loss_scale
        if gradient is not None and self._early is not None and not self.nested and self._early.takes(target):
            owned = _owned(gradient, variables=4, arrays=4)
            del gradient
            self._updated.add(id(target))
            self._early.ready(target, owned)

    # --- what is let go, and how it comes back ------------------------------------------------------------------------

    def _release_after(self, function: Any) -> None:
        """Let go what the backward step of this function was the last to read."""
        self._place += 1
        for node in _read_by_backward(function):
            self._uses[node] -= 1
            if self._uses[node] <= 0 and node.creator_node is not None and not self._wanted(node):
                node._data = None
        if function._retained_output_data is not None:
            function._retained_output_data = (None,) * len(function._retained_output_data)
        for output in function.outputs:
            if output() is not None:
                output()._data = None
        function._stowplan_released = tuple(hidden_arrays(function))
        for name in function._stowplan_released:
            set_hidden(function, name, None)
        number = getattr(function, "_stowplan", None)
        if number is not None and self._follower is not None:
            directions = self._follower.directions
            for name in directions.operators[number].pack if directions is not None else ():
                self._packed.pop((number, name), None)
            for value in self._follower.released_after(self._place):
                node = self._nodes.get(value, _nobody)()
                if node is not None and self._uses[node] <= 0:
                    node._data = None

    def _wanted(self, node: Any) -> bool:
        """Whether a recomputation to come reads a node's array, by the directions."""
        if self._follower is None:
            return False
        value = getattr(node, "_stowplan_value", None)
        return value is not None and self._follower.last_place(value) > self._place

    def _ensure(self, function: Any) -> None:
        """Have there all that a function's backward step reads."""
        number = getattr(function, "_stowplan", None)
        if number is None:
            return
        self._unpack(function)
        makers = []
        for index in function._input_indexes_to_retain or ():
            node = function.inputs[index]
            if node._data is None:
                node._data = _array(node)
                if node._data is None and node.creator_node is not None:
                    makers.append(node.creator_node)
        if self._cleared(function) or self._outputs_missing(function):
            makers.append(function)
        if makers:
            self._rebuild(makers, set(_read_by_backward(function)))
            self._outputs_missing(function)
            self._unpack(function)

    def _cleared(self, function: Any) -> bool:
        """Whether a hidden array is gone, by the directions or as a backward step before this one was over."""
        names = getattr(function, "_stowplan_released", ())
        directions = self._follower.directions if self._follower is not None else None
        if directions is not None:
            names += directions.operators[function._stowplan].clear
        gone = [name for name in names if get_hidden(function, name) is None]
        if DRAWN.get(type(function), frozenset()).intersection(gone):
            raise ScheduleError(
                f"a second backward pass comes by {function.label}, and what it drew is gone; {_LEAVE_OUT}"
            )
        return bool(gone)

    def _outputs_missing(self, function: Any) -> bool:
        """Fill in retained outputs from their nodes; return whether one is still missing."""
        data = function._retained_output_data
        if not function._output_indexes_to_retain or data is None:
            return False
        filled = list(data)
        for place, index in enumerate(function._output_indexes_to_retain):
            node = function.outputs[index]()
            if filled[place] is None and node is not None:
                filled[place] = _array(node)
            if node is not None and node._data is None:
                node._data = filled[place]
        function._retained_output_data = tuple(filled)
        return any(array is None for array in filled)

    def _unpack(self, function: Any) -> None:
        for (number, name), packed in list(self._packed.items()) if self._packed else ():
            if number == function._stowplan and get_hidden(function, name) is None:
                set_hidden(function, name, masks.unpack(packed))

    def _pack_again(self, function: Any) -> None:
        for number, name in self._packed:
            if number == function._stowplan:
                set_hidden(function, name, None)

    def _rebuild(self, makers: list[Any], wanted: set[Any]) -> None:
        """Run functions again, and before them those whose outputs they read and find gone.

        Arrays stay of the nodes that are wanted, and of those that backward steps to come will read.
        """
        again: dict[Any, None] = {}
        stack = list(makers)
        while stack:
            function = stack.pop()
            if function in again:
                continue
            again[function] = None
            for node in function.inputs:
                if _array(node) is None:
                    if node.creator_node is None:
                        raise ScheduleError(f"an input of {function.label} is gone: it cannot run again")
                    stack.append(node.creator_node)
                elif id(node.get_variable_or_none()) in self._updated:
                    raise ScheduleError(
                        f"{function.label} would run again after the update of its parameter; {_LEAVE_OUT}"
                    )
        order = sorted(again, key=lambda function: function._stowplan)
        readers = collections.Counter(node for function in order for node in function.inputs)
        temporary: dict[Any, Any] = {}
        for function in order:
            self._run_again(function, readers, temporary, wanted)
            if function not in makers:
                self._pack_again(function)

    def _run_again(
        self,
        function: Any,
        readers: collections.Counter[Any],
        temporary: dict[Any, Any],
        wanted: set[Any],
    ) -> None:
        self._unpack(function)
        arrays = []
        for node in function.inputs:
            array = _array(node)
            arrays.append(temporary[node] if array is None else array)
        outputs = rerun(function, arrays, getattr(function, "_stowplan_settings", None))
        self.recomputed += 1
        del array, arrays
        for node in function.inputs:
            readers[node] -= 1
            if readers[node] == 0:
                temporary.pop(node, None)
        for index, output in enumerate(function.outputs):
            node = output()
            if node is None:
                _fill_output(function, index, outputs[index])
            elif node._data is None:
                if self._uses[node] > 0 or node in wanted:
                    node._data = outputs[index]
                elif readers[node] > 0:
                    temporary[node] = outputs[index]


class _Candidates:
    """Functions whose backward step may be next: by a schedule's order as long as that holds, else as Chainer's."""

    def __init__(self, order: Any, waiting: collections.Counter[Any]) -> None:
        self._order = order
        self._waiting = waiting
        self._seen: set[Any] = set()
        self._heap: list[Any] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, function: Any) -> None:
        if function not in self._seen:
            heapq.heappush(self._heap, (self._key(function), len(self._seen), function))
            self._seen.add(function)

    def pop(self) -> Any:
        if self._order is not None:
            function = self._heap[0][2]
            if self._waiting[function] == 0:
                return heapq.heappop(self._heap)[2]
            # The schedule is of another graph: go on as Chainer would.
            self._order = None
            self._heap = [(self._key(f), age, f) for _, age, f in self._heap]
            heapq.heapify(self._heap)
        return heapq.heappop(self._heap)[2]

    def _key(self, function: Any) -> int:
        if self._order is None:
            return -int(function.rank)
        return int(self._order.get(getattr(function, "_stowplan", -1), -1))


def _reachable(outputs: Any) -> list[Any]:
    """All functions that a backward pass from these (node, gradient) may come by."""
    found: dict[Any, None] = {}
    stack = [node.creator_node for node, _ in outputs if node.creator_node is not None]
    while stack:
        function = stack.pop()
        if function not in found:
            found[function] = None
            stack.extend(n.creator_node for n in function.inputs if n.creator_node is not None)
    return list(found)


def _read_by_backward(function: Any) -> list[Any]:
    """Return the nodes whose arrays a function's backward step reads: inputs, and its own outputs that are alive."""
    nodes = [function.inputs[index] for index in function._input_indexes_to_retain or ()]
    outputs = (function.outputs[index]() for index in function._output_indexes_to_retain or ())
    return nodes + [node for node in outputs if node is not None]


def _array(node: Any) -> Any:
    """Return a node's array: retained, or that of a variable somebody holds; None where it is gone."""
    if node._data is not None:
        return node._data
    holder = node._variable()
    return None if holder is None else holder._data[0]


def _array_of(value: Any) -> Any:
    return value._data[0] if isinstance(value, variable.Variable) else value


def _there(*groups: Any) -> list[Any]:
    return [array for group in groups for array in group if array is not None]


def _take_out_grads(function: Any, grads: Any) -> tuple[Any, ...]:
    """Take the gradients of a function's outputs, None where there is none."""
    nodes = [output() for output in function.outputs]
    return tuple(
        grads.pop(node) if node is not None and node.creator_node is not None else None for node in nodes
    )


def _fill_output(function: Any, index: int, array: Any) -> None:
    """Give a retained output to its function, whose node for it is gone."""
    data = function._retained_output_data
    if data is not None and index in function._output_indexes_to_retain:
        place = list(function._output_indexes_to_retain).index(index)
        if data[place] is None:
            function._retained_output_data = (*data[:place], array, *data[place + 1 :])


def _sum(gradients: list[Any]) -> None:
    """Sum the gradients of one node, in their order; in the first one's array where nobody else sees that.

    Bit by bit what Chainer's sum gives: it has the same operands in the same order, and as both arrays are contiguous
    in the same way so is the result.
    """
    if len(gradients) == 2:
        a, b = gradients[0].raw_array, gradients[1].raw_array
        if (
            type(a) is type(b)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.flags.c_contiguous
            and b.flags.c_contiguous
            and gradients[0].layout is None
            and gradients[1].layout is None
            and not chainer.config.enable_backprop
            and (type(a) is not np.ndarray or a.flags.writeable)
        ):
            del a
            if _owned(gradients[0], variables=3, arrays=3):
                a = gradients[0].raw_array
                chainer.backend.get_array_module(a).add(a, b, out=a)
                gradients.pop()
                return
    _backprop_utils._reduce(gradients)


def _owned(gradient: Any, variables: int, arrays: int) -> bool:
    """Whether a gradient's array is seen by nobody else, by the counts of references that its few holders make."""
    array = gradient.raw_array
    base = getattr(array, "base", None)
    return base is None and sys.getrefcount(gradient) <= variables and sys.getrefcount(array) <= arrays


def _nobody() -> None:
    return None
