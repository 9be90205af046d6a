"""A backward pass under a schedule: as `chainer._backprop._backprop_to_all`, with the same sums in the same order.

::

    run       while a function is ready     all that add to the gradients of its outputs are over
                  its backward step, then what it was the last to read is freed
                  finish each leaf whose last reader it was, if its gradient goes before the pass is over
              finish the other leaves

A function is a local variable of one call alone: when that returns, nothing here keeps it, nor its gradients, alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from chainer import _backprop_utils

from .gradients import Candidates, read_by_backward, take_out

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
        self._readers: Counter[Any] = Counter()  # backward steps that a leaf's gradient waits for
        self._waiting: Counter[Any] = Counter()  # those that the outputs' gradients of a function wait for
        self._idle: set[int] = set()  # functions, by their ids, of which no input requires a gradient
        step.values.uses = self._count(functions)
        functions.clear()
        self._candidates = Candidates(step.backward_order(), self._waiting)
        self._grads = _backprop_utils.GradTable(accumulate_grad_inputs=True)
        self._leaves: dict[Any, None] = {}  # in an order that is the same in each step
        for node, gradient in outputs:
            self._grads.accumulate(node, gradient)
        self._make_ready(node for node, _ in outputs)

    def _count(self, functions: Iterable[Any]) -> Counter[Any]:
        """Count what each leaf and each function waits for; return how many backward steps read each node's array."""
        uses: Counter[Any] = Counter()
        for function in functions:
            if not any(node.requires_grad for node in function.inputs):
                self._idle.add(id(function))
                continue
            for node in read_by_backward(function):
                uses[node] += 1
            for node in dict.fromkeys(function.inputs):
                if node.creator_node is None:
                    self._readers[node] += 1
                elif node.requires_grad:
                    self._waiting[node.creator_node] += 1
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
        while self._candidates:
            self._run_next()
        for node in self._leaves:
            self._step.finish_leaf(node, self._grads, self._loss_scale)
        self._grads.assert_no_grads()

    def _run_next(self) -> None:
        function = self._candidates.pop()
        if id(function) in self._idle:
            take_out(function, self._grads)
            return
        self._step.count_visits(function)
        self._make_ready(self._step.backward_step(function, self._grads))
        self._step.after_backward_step(function, self._grads)
        for node in dict.fromkeys(function.inputs):
            if node.creator_node is None:
                self._readers[node] -= 1
                if self._readers[node] == 0 and node in self._leaves and self._step.frees(node):
                    self._leaves.pop(node)  # its gradient is complete, and may go before the pass is over
                    self._step.finish_leaf(node, self._grads, self._loss_scale)
            elif node.requires_grad:
                self._waiting[node.creator_node] -= 1
