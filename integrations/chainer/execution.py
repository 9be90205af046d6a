"""Run one step of Chainer's under a schedule: forward operators, backward passes, updates.

The forward pass is Chainer's; after each operator `values` frees the arrays that the directions do not keep. The
backward pass is a loop of its own (`backward_pass`), with the same sums in the same order as Chainer's:

- before an operator's backward step all arrays that it reads are brought back, and after it those that are not read
  again are freed (*release*), while Chainer keeps all of them until the loss is freed;
- a sum of gradients is formed in the array of the first one, and ReLU's and sigmoid's gradient in that of the output,
  if nothing else refers to that array;
- a parameter whose gradient is complete is updated at once, where `optimizer_in_backward` finds no reason against it.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Container, Iterable
from typing import Any

import chainer
from chainer import variable
from chainer.functions.util.forget import Forget

from ..common.errors import ScheduleError
from . import patches
from .backward_pass import (
    BackwardPass,
    owned,
    reachable,
    sum_gradients,
    take_gradients,
    take_out,
    using_device_of,
    write_over,
)
from .evictions import FORWARD, Swap
from .function_state import FunctionState, array_of, has_all, note_reads, state_of
from .optimizer_in_backward import Consumed, EarlyUpdate, reason_in
from .rerun import held_arrays
from .schedule_follower import Follower
from .sparing import Sparing
from .values import StepValues
from .written import Written

_tokens = itertools.count()
"""A number for each step."""


class ScheduledStep:
    """One step, from its first operator to its last update. Runs at the seams (`patches.running`).

    Parameters
    ----------
    release
        Whether arrays are freed after the last backward step that reads them.
    follower
        Finds the directions for the operators that come; None: there are none.
    swap
        The place that values are evicted to; None: they stay.
    sparing
        Decides what is kept if there is no follower; None: all that a backward step reads.

    Attributes
    ----------
    releases, follower
        As `release`, and as given.
    written
        Finds out if the program writes on arrays; None: nothing looks for that, and no operator runs again.
    values
        Which arrays are in memory; counts what was recomputed and swapped.
    count
        Forward operators so far.
    passes
        Backward passes so far.
    early
        Updates parameters in the next backward pass; None: it updates none.
    nested
        Whether an operator ran a backward pass of its own, which may reach parameters that no operator reads.
    updates
        Calls of an optimizer's `update`.
    gradients_found
        Bytes of each gradient that the first backward pass found, and adds to, by the variable's id.
    keeps_gradients
        Why gradients are kept until the update; None: they are not, or nothing was to be updated early.
    is_half_updated
        Whether the step ended after some parameters were updated early, and before the others were.
    before_backward
        Called before each pass.
    """

    def __init__(
        self,
        *,
        release: bool = True,
        follower: Follower | None = None,
        swap: Swap | None = None,
        sparing: Sparing | None = None,
        written: Written | None = None,
    ) -> None:
        self.releases = release
        self.written = written
        self.follower = follower
        self._token = next(_tokens)
        self.values = StepValues(self._token, follower, swap, sparing, written)
        self.early: EarlyUpdate | None = None
        self.is_half_updated = False
        self.keeps_gradients: str | None = None
        self.count = 0
        self.passes = 0
        self._walked_twice = False  # whether two backward passes visited one operator
        self.nested = False
        self._earlier = False  # whether a backward pass reached into the graph of an earlier step
        self._outdated = False  # whether one came by an operator after the update of its parameter
        self.updates = 0
        self.gradients_found: dict[int, int] = {}
        self._cut_off = False  # whether one came by an operator that had lost one that made an input
        self.before_backward: Callable[[], None] | None = None
        self._in_backward = False
        self._consumed: dict[Any, Consumed] = {}  # of the nodes of parameters that this pass comes by
        self._visited: set[int] = set()
        self._functions: list[weakref.ref[Any]] = []  # that the step has applied

    def reason_to_keep_graph(self) -> str | None:
        """Return why arrays of such steps must be kept, as Chainer does; None: they can go.

        The last three are looked for where operators may run again: none must after the update of its parameter.
        """
        is_written = self.written is not None and self.written.found
        reasons = {
            "a backward pass reaches into an earlier step": self._earlier,
            "two backward passes visit one operator": self._walked_twice,
            "a variable is cut off (Variable.unchain) after an operator has read it": self._cut_off,
            "the program writes on an array after an operator has made or read it": is_written,
            "a backward pass visits an operator whose parameter has been updated": self._outdated,
        }
        return next((reason for reason, is_found in reasons.items() if is_found), None)

    def close(self) -> None:
        """Free the step's graph, without waiting for garbage collection."""
        self.before_backward = self.early = None
        self.values.close()
        if self.written is not None:
            self.written.close()

    # --- forward ------------------------------------------------------------------------------------------------------

    def forward(self, function: Any, inputs: Any) -> Any:
        """Apply a function; then free the arrays that the directions do not keep."""
        if self._in_backward or not chainer.config.enable_backprop:
            return patches.apply(function, inputs)
        values = self.values
        values.hiding.hide()
        values.reach((FORWARD, self.count))
        held = [*held_arrays(function).values()] if values.sparing is not None else []
        state = function._stowplan = FunctionState(self._token, self.count)
        if values.parameters is not None:
            values.parameters.use(inputs)
        outputs = self.apply(function, inputs)
        if function.inputs is not None:
            self.count += 1
            self._functions.append(weakref.ref(function))
            state.reads = dict.fromkeys(function._input_indexes_to_retain or ())
            state.reads_outputs = dict.fromkeys(function._output_indexes_to_retain or ())
            self.nested |= isinstance(function, Forget)
            if self.follower is not None:
                values.directions = self.follower.saw(function, inputs, outputs)
            if values.directions is not None:
                values.after_forward(function, inputs, outputs)
            elif values.sparing is not None:
                hide = values.sparing.after_forward(function, held, inputs, outputs)
                values.hiding.later(function, hide)
            if self.written is not None:
                state.made = _made(function)
                read = zip(function.inputs, map(array_of, inputs), strict=True)
                again = state.settings is not None
                self.written.saw(read, ((y.node, y.raw_array) for y in outputs), again)
        if values.parameters is not None:
            values.parameters.unchanged_by(function)
        return outputs

    def apply(self, function: Any, inputs: Any) -> Any:
        """Apply a function as Chainer does."""
        return patches.apply(function, inputs)

    # --- backward -----------------------------------------------------------------------------------------------------

    def backward(self, outputs: Any, retain_grad: bool, loss_scale: Any) -> None:
        """Run a backward pass: Chainer's own if it would read arrays that are freed here, or if its graph was cut."""
        if self._in_backward:
            self.nested = True
            patches.backprop_to_all(outputs, retain_grad, loss_scale)
            return
        self.passes += 1
        self.values.hiding.hide()  # before anything here refers to functions
        if self.before_backward is not None:
            self.before_backward()
        self._in_backward = True
        try:
            note_reads(functions := reachable(outputs))
            is_own = self._is_own(functions)
            found, self._consumed = take_gradients(functions)
            self.gradients_found = found if self.passes == 1 else self.gradients_found
            if self.written is not None:
                self.written.look()
            if self.values.parameters is not None:
                self.values.parameters.written = None
            self.values.count_readers(self._functions)
            if retain_grad or chainer.config.enable_backprop or not is_own or not self.releases:
                self._count_visits(functions)
                functions.clear()
                self.early = None
                patches.backprop_to_all(outputs, retain_grad, loss_scale)
            else:
                self._check_early(functions)
                BackwardPass(self, outputs, functions, loss_scale).run()
        finally:
            self._in_backward = False
            for node, consumed in self._consumed.items():
                consumed.put(node.get_variable())
            self._consumed.clear()

    def _check_early(self, functions: Iterable[Any]) -> None:
        """Update no parameter in the pass by these functions if there is a reason against it, or an array is gone."""
        if self.early is not None and self.early.is_checked:
            reason = reason_in(functions, self.early)
            if reason is not None:
                self.early = None
                self.keep_gradients(reason)
        if self.early is not None:
            self.values.require_complete(functions)

    def keep_gradients(self, reason: str) -> None:
        """Note why gradients are kept until the update; the first reason counts."""
        self.keeps_gradients = self.keeps_gradients or reason

    def _is_own(self, functions: Iterable[Any]) -> bool:
        """Whether a pass by these functions may be the step's own; note why not.

        All must be this step's, and, where one may run again, have what made their inputs. Raise where those of an
        earlier step have lost their arrays.
        """
        is_own = True
        for function in functions:
            state: FunctionState | None = getattr(function, "_stowplan", None)
            if state is None or state.step != self._token:
                is_own = False
                self._earlier |= state is not None
                if state is not None and not has_all(function, state):
                    raise ScheduleError(
                        f"a backward pass reaches into an earlier step, where the arrays of {function.label} are "
                        "gone; expected a pass that ends in its own step (Variable.unchain_backward), or watch=True"
                    )
            elif self.written is not None:
                self._cut_off |= _made(function) < state.made
            if self.written is not None and self.values.updated:
                self._outdated |= self.values.is_outdated(function)
        return is_own and not self._earlier and not self._cut_off

    def before_backward_step(self, function: Any) -> None:
        """Bring back the arrays that the backward step of one function reads."""
        state = state_of(function, self._token)
        if function.inputs is not None and state is not None:
            self._walked_twice |= not self._in_backward and state.number in self._visited  # by chainer.grad
            self.values.hiding.hide()
            self.values.before_backward(function)

    def _count_visits(self, functions: Iterable[Any]) -> None:
        """Note that a backward pass visits these."""
        for function in functions:
            state = state_of(function, self._token)
            if state is not None:
                self._walked_twice |= state.number in self._visited
                self._visited.add(state.number)

    def backward_step(self, function: Any, grads: Any) -> list[Any]:
        """Run one function's backward step; return the nodes that it gave a gradient."""
        self._count_visits([function])
        inputs = function.inputs
        targets = tuple([i for i, node in enumerate(inputs) if node.requires_grad])
        out_grad = take_out(function, grads)
        self._bring_back(function)
        in_place = inputs[0].creator_node is not None and write_over(function, out_grad)
        if in_place:
            self.wrote_over(out_grad[0].raw_array)
        read = function._stowplan.reads  # a schedule keeps others, too
        in_data = tuple([node.data if k in read else None for k, node in enumerate(inputs)])
        out_arrays = tuple([None if gradient is None else gradient.raw_array for gradient in out_grad])
        hooks = chainer.get_function_hooks()
        if function._n_local_function_hooks != 0:
            hooks = {**hooks, **function.local_function_hooks}
        with using_device_of(in_data + out_arrays):
            for hook in hooks.values():
                hook.backward_preprocess(function, in_data, out_arrays)
            in_grad: dict[Any, Any] = {}
            for i in targets:
                if inputs[i] not in in_grad:
                    in_grad[inputs[i]] = grads.get_as_list(inputs[i])
            lazy, function.lazy_grad_sum = function.lazy_grad_sum, True
            try:
                if in_place:
                    in_grad[inputs[0]].append(out_grad[0])
                else:
                    patches.backprop_step(function, targets, out_grad, in_grad, chainer.is_debug())
            finally:
                function.lazy_grad_sum = lazy
            if not lazy:
                for gradients in in_grad.values():
                    if len(gradients) > 1:
                        sum_gradients(gradients)
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

    def after_backward_step(self, function: Any, grads: Any) -> None:
        """Free what the backward step of a function was the last to read."""
        if self.values.parameters is not None:
            self.values.parameters.unchanged_by(function)
        self.values.after_backward(function, self._tables(grads))

    def backward_order(self) -> Any:
        """Return the place of each function's backward step, by its number; None: Chainer's order."""
        if self.follower is None or self.nested or chainer.config.lazy_grad_sum:
            return None
        return self.follower.order()

    def _bring_back(self, function: Any) -> None:
        self.values.before_backward(function)

    def _tables(self, grads: Any) -> list[Container[Any]]:
        """Return the tables of a backward pass that refer to nodes, besides those of `values`."""
        return [grads.grads]

    def wrote_over(self, array: Any) -> None:
        """Note that a gradient was written over that of the output, in this array."""

    def update_rest(self, update: Callable[[], None]) -> None:
        """Run the update of the parameters that were not updated early."""
        update()

    def updated(self, parameters: Iterable[Any]) -> None:
        """Note that these were updated: no operator that has read them may run again."""
        for param in parameters:
            self.values.updated[id(param)] = self.count
            if self.written is not None:
                self.written.forget(param.node)

    def frees(self, node: Any) -> bool:
        """Whether the gradient of a leaf that is complete goes before the pass is over."""
        may_update = self._may_update(node)
        if may_update and self.values.parameters is not None:
            self.values.parameters.use([node.get_variable_or_none()], state=True)
        return may_update or node in self._consumed

    def _may_update(self, node: Any) -> bool:
        return (
            self.early is not None
            and not self.nested
            and id(node.get_variable_or_none()) in self.early.parameters
        )

    def finish_leaf(self, node: Any, grads: Any, loss_scale: Any) -> None:
        """Give a complete gradient to its variable; update it, if it is a parameter that may be updated early."""
        target = node.get_variable_or_none()
        early = self.early if self._may_update(node) else None
        gradient = grads.pop(node)
        if target is None or node in self._consumed:
            return
        target._set_grad_var_without_check(gradient)
        target._loss_scale = loss_scale
        if gradient is not None and early is not None:
            is_owned = owned(gradient, variables=4, arrays=4)
            del gradient
            self.updated([target])
            early.ready(target, is_owned)


def _made(function: Any) -> int:
    return sum([node.creator_node is not None for node in function.inputs])
