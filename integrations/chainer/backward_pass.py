"""A backward pass under a schedule: as `chainer._backprop._backprop_to_all`, with the same sums in the same order.

::

    run       while a function is ready     all that add to the gradients of its outputs are over
                  its backward step, then what it was the last to read is freed
                  finish each leaf whose last reader it was, if its gradient goes before the pass is over
              finish the other leaves

A function is a local variable of one call alone: when that returns, nothing here keeps it, nor its gradients, alive.
"""

from __future__ import annotations

import contextlib
import heapq
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import chainer
import numpy as np
from chainer import _backprop_utils
from chainer.backends import intel64
from chainer.functions.activation.relu import ReLU
from chainer.functions.activation.sigmoid import Sigmoid

from .function_state import EXACT_COUNTS, read_by_backward
from .optimizer_in_backward import Consumed

if TYPE_CHECKING:
    from .execution import ScheduledStep


class BackwardPass:
    """One backward pass of a step.

    Parameters
    ----------
    step
        Runs the backward step of each function, and finishes leaves.
    outputs
        The nodes that it begins with, and their gradients.
    functions
        All that it may visit; emptied.
    loss_scale
        As Chainer has it.
    """

    def __init__(self, step: ScheduledStep, outputs: Any, functions: list[Any], loss_scale: Any) -> None:
        self._step, self._loss_scale = step, loss_scale
        self._waiting: Counter[Any] = Counter()  # backward steps that a leaf or a function waits for
        self._idle: set[int] = set()  # functions, by their ids, of which no input requires a gradient
        step.values.uses = self._count(functions)
        functions.clear()
        self._candidates = Candidates(step.backward_order(), self._waiting)
        self._grads = _backprop_utils.GradTable(accumulate_grad_inputs=True)
        self._leaves: dict[Any, None] = {}  # in an order that is the same in each step
        for node, gradient in outputs:
            self._grads.accumulate(node, gradient)
        self._make_ready([node for node, _ in outputs])

    def _count(self, functions: Iterable[Any]) -> Counter[Any]:
        """Count what each leaf and each function waits for; return how many backward steps read each node's array."""
        uses: Counter[Any] = Counter()
        for function in functions:
            if not any(map(_requires_grad, function.inputs)):
                self._idle.add(id(function))
                continue
            for node in read_by_backward(function):
                uses[node] += 1
            for node in dict.fromkeys(function.inputs):
                if node.requires_grad:
                    self._waiting[node if node.creator_node is None else node.creator_node] += 1
        return uses

    def _make_ready(self, nodes: Iterable[Any]) -> None:
        """Note that these have a gradient: each is a leaf, or its creator's backward step may come."""
        for node in nodes:
            if node.creator_node is None:
                self._leaves[node] = None
            else:
                self._candidates.add(node.creator_node)

    def run(self) -> None:
        """Run the pass, to its end."""
        while self._candidates.heap:
            self._run_next()
        for node in self._leaves:
            self._step.finish_leaf(node, self._grads, self._loss_scale)
        self._grads.assert_no_grads()

    def _run_next(self) -> None:
        function = self._candidates.pop()
        if id(function) in self._idle:
            take_out(function, self._grads)
            return
        self._make_ready(self._step.backward_step(function, self._grads))
        self._step.after_backward_step(function, self._grads)
        for node in dict.fromkeys(function.inputs):
            if node.requires_grad and node.creator_node is not None:
                self._waiting[node.creator_node] -= 1
            elif node.requires_grad:
                self._waiting[node] -= 1
                if self._waiting[node] == 0 and node in self._leaves and self._step.frees(node):
                    self._leaves.pop(node)  # its gradient is complete, and may go before the pass is over
                    self._step.finish_leaf(node, self._grads, self._loss_scale)


# --- sums of gradients, and what comes next -------------------------------------------------------------------------


class Candidates:
    """Functions whose backward step may be next: in a schedule's order as long as that is possible, else in Chainer's.

    Parameters
    ----------
    order
        Place of each function by its number; None: by rank, as Chainer does.
    waiting
        How many functions will still add to the gradients of each function's outputs.

    Attributes
    ----------
    heap
        Those that have been added, and are to come.
    """

    def __init__(self, order: Any, waiting: Counter[Any]) -> None:
        self._order = order
        self._waiting = waiting
        self._seen: set[Any] = set()
        self.heap: list[Any] = []

    def add(self, function: Any) -> None:
        """Add a function that has a gradient, if it has not been added."""
        if function not in self._seen:
            heapq.heappush(self.heap, (self._key(function), len(self._seen), function))
            self._seen.add(function)

    def pop(self) -> Any:
        """Return the next one."""
        if self._order is not None:
            function = self.heap[0][2]
            if self._waiting[function] == 0:
                return heapq.heappop(self.heap)[2]
            # The schedule is of another graph: go on as Chainer would.
            self._order = None
            self.heap = [(self._key(f), age, f) for _, age, f in self.heap]
            heapq.heapify(self.heap)
        return heapq.heappop(self.heap)[2]

    def _key(self, function: Any) -> int:
        if self._order is None:
            return -int(function.rank)
        return int(self._order.get(function._stowplan.number, -1))


def reachable(outputs: Any) -> list[Any]:
    """Return all functions that a backward pass from these (node, gradient) may visit."""
    found: dict[Any, None] = {}
    nodes = [node for node, _ in outputs]
    while nodes:
        function = nodes.pop().creator_node
        if function is not None and function not in found:
            found[function] = None
            nodes.extend(function.inputs)
    return list(found)


def take_out(function: Any, grads: Any) -> tuple[Any, ...]:
    """Remove and return the gradients of a function's outputs, None if there is none."""
    found = []
    for output in function.outputs:
        node = output()
        found.append(None if node is None or node.creator_node is None else grads.pop(node))
    return tuple(found)


def sum_gradients(gradients: list[Any]) -> None:
    """Sum two or more gradients of one node, in their order; in the first one's array if nothing else refers to that.

    The result is Chainer's, bit by bit: it has the same operands in the same order, and both, where it is formed in
    place, are contiguous in the same way, as the result then is. `chainer.functions.add` would do the same, but takes
    several times as long around a small sum: it is left to what cannot be seen to be alike, and to function hooks,
    which expect to be called for it.
    """
    if len(gradients) == 2:
        a, b = gradients[0].raw_array, gradients[1].raw_array
        if (
            type(a) is type(b)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and gradients[0].layout is None
            and gradients[1].layout is None
            and not chainer.config.enable_backprop
        ):
            in_place = (
                a.flags.c_contiguous
                and b.flags.c_contiguous
                and (type(a) is not np.ndarray or a.flags.writeable)
            )
            del a
            if in_place and owned(gradients[0], variables=3, arrays=3):
                a = gradients[0].raw_array
                chainer.backend.get_array_module(a).add(a, b, out=a)
                gradients.pop()
                return
            if not chainer.get_function_hooks() and not chainer.is_debug():
                total = chainer.utils.force_array(gradients[0].raw_array + b)
                requires_grad = gradients[0].requires_grad or gradients[1].requires_grad
                gradients[:] = [chainer.Variable(total, requires_grad=requires_grad)]
                return
    _backprop_utils._reduce(gradients)


def write_over(function: Any, out_grad: tuple[Any, ...]) -> bool:
    """Write the gradient of ReLU's or sigmoid's input over that of its output, if nothing else refers to its array.

    The result is Chainer's, bit by bit: the same operations on the same operands. Only arrays of NumPy's that are
    contiguous in the same way are written over, and only where no hook, and no debugging, expects Chainer's functions.

    Parameters
    ----------
    function
        A `chainer.FunctionNode` that has its retained outputs.
    out_grad
        The gradients of its outputs.

    Returns
    -------
    bool
        Whether the array of ``out_grad[0]`` is now the gradient of the input.
    """
    if type(function) not in (ReLU, Sigmoid) or out_grad[0] is None or out_grad[0].layout is not None:
        return False
    if chainer.is_debug() or chainer.get_function_hooks() or function._n_local_function_hooks:
        return False
    y = function.get_retained_outputs()[0].raw_array
    gy = out_grad[0].raw_array
    if not (type(y) is type(gy) is np.ndarray and y.dtype == gy.dtype and y.shape == gy.shape):
        return False
    contiguous = y.flags.c_contiguous and gy.flags.c_contiguous and gy.flags.writeable
    if not contiguous or intel64.should_use_ideep(">=auto"):
        return False
    del gy
    if not owned(out_grad[0], variables=3, arrays=3):
        return False
    gy = out_grad[0].raw_array
    if type(function) is ReLU:
        np.multiply(gy, y > 0, out=gy)
    else:
        np.multiply(gy, y, out=gy)
        np.multiply(gy, y.dtype.type(1) - y, out=gy)
    return True


def owned(gradient: Any, variables: int, arrays: int) -> bool:
    """Whether nothing else refers to a gradient's array: whether its holders account for all of its references."""
    array = gradient.raw_array
    return EXACT_COUNTS and (
        getattr(array, "base", None) is None
        and sys.getrefcount(gradient) <= variables
        and sys.getrefcount(array) <= arrays
        and (type(array) is np.ndarray or _alone_in_memory(array))
    )


def _alone_in_memory(array: Any) -> bool:
    """Whether no other CuPy array points into an array's memory: one may without being a view."""
    pointer = getattr(array, "data", None)
    memory = getattr(pointer, "mem", None)
    # Beside the array, the pointer to its memory is held here and by the call; the memory by the pointer.
    return sys.getrefcount(pointer) <= 3 and sys.getrefcount(memory) <= 3


def take_gradients(functions: Iterable[Any]) -> tuple[dict[int, int], dict[Any, Consumed]]:
    """Return the bytes of the gradients that a backward pass adds to, by the variable's id; set apart what is consumed.

    A gradient that is consumed is taken from its variable, and is to be put back when the pass is over: by its node.
    """
    found: dict[int, int] = {}
    consumed: dict[Any, Consumed] = {}
    for node in {node for function in functions for node in function.inputs if node.creator_node is None}:
        target = node.get_variable_or_none()
        if target is None:
            continue
        if isinstance(target._grad_var, Consumed):
            consumed[node], target._grad_var = target._grad_var, None
        gradient = target._grad if target._grad_var is None else target._grad_var.raw_array
        if gradient is not None and target._grad_valid is True:
            found[id(target)] = int(gradient.nbytes)
    return found, consumed


_requires_grad = attrgetter("requires_grad")
_no_device = contextlib.nullcontext()


def using_device_of(arrays: tuple[Any, ...]) -> AbstractContextManager[Any]:
    """Make the device of these arrays, of which some may be None, the current one; NumPy's arrays have none."""
    for array in arrays:
        if array is not None and type(array) is not np.ndarray:
            there = [one for one in arrays if one is not None]
            return chainer.using_device(chainer.backend.get_device_from_array(*there))  # type: ignore[no-any-return]
    return _no_device
