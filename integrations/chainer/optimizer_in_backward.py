"""Update a parameter in the backward pass, as soon as its gradient is complete, and free the gradient at once.

::

    optimizer.update(lossfun, x, t)      one call: forward, cleargrads, backward (updates early), the parameters left
    loss.backward(); optimizer.update()  two calls, and the program stands between them: Chainer's update, unless the
                                         program asks for early ones by name

Chainer updates all parameters when the backward pass is over, and keeps their gradients until the next step's has
begun. The update of one parameter reads and writes nothing of another's, so nothing changes, bit by bit, if it comes
early, as long as

- the parameter is not read any more: the backward steps of all its readers are over, and no other operator of the pass
  has its memory, nor another parameter its update rule or state;
- no hook looks at several gradients at once (clipping by the global norm, loss scaling with its checks) or draws random
  numbers in the order of parameters (gradient noise);
- no code of the program's runs in the backward pass.

`reason_against` finds such reasons in an optimizer, `reason_in` in a backward pass. They know Chainer's own classes;
any other one is a reason. A gradient that is gone is `Consumed`: whoever reads it gets an error.

ChainerMN's multi-node optimizers are no optimizers but stand before one: their `update` runs the backward pass,
averages the gradients over all ranks, in an order that all ranks share, and then calls the `update` of the optimizer,
which is the one that is replaced. No parameter can be updated before the average exists, so none is updated early.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import chainer
import numpy as np
from chainer import optimizer_hooks
from chainer.optimizer import GradientMethod, Hyperparameter

from ..common.errors import ScheduleError
from .parameter_swap import SwappedParameter, in_memory
from .rerun import is_known
from .updates import ELEMENTWISE, ELEMENTWISE_HOOKS, call_hook_in_pieces, update_in_pieces

if TYPE_CHECKING:
    from .execution import ScheduledStep

HOOKS = ELEMENTWISE_HOOKS | {optimizer_hooks.GradientLARS}
"""Hooks that look at one parameter at a time and draw no random numbers."""

BY_HAND = "optimizer.update() comes after backward(), and the program stands between them"
NESTED = "an operator runs a backward pass of its own"
"""Why gradients are kept."""


def behind(optimizer: Any) -> Any:
    """Return the optimizer that a multi-node optimizer of ChainerMN's stands before; any other one as it is."""
    return vars(optimizer).get("actual_optimizer", optimizer)


def require_set_up(optimizers: Iterable[Any]) -> None:
    """Raise unless all are optimizers of Chainer or ChainerMN, and have been set up.

    Raises
    ------
    ScheduleError
        Naming the first that is not, or has no model.
    """
    for optimizer in optimizers:
        if not isinstance(getattr(optimizer, "actual_optimizer", optimizer), chainer.Optimizer):
            raise ScheduleError(f"optimizer is {optimizer!r}; expected a chainer.Optimizer, or several")
        if optimizer.target is None:
            raise ScheduleError(
                f"{type(optimizer).__name__} has no model; expected optimizer.setup(model) before"
            )


# --- why not ----------------------------------------------------------------------------------------------------------

METHODS = ("reallocate_cleared_grads", "check_nan_in_grads", "call_hooks", "call_hook", "is_safe_to_update")
"""What Chainer's `update` calls, and an early one does not."""


def reason_against(optimizer: Any) -> str | None:
    """Return why an optimizer's parameters cannot be updated early; None if they can.

    Parameters
    ----------
    optimizer
        A `chainer.Optimizer` that has been set up.
    """
    kind = type(optimizer)
    if behind(optimizer) is not optimizer:
        return "gradients are averaged over all ranks when the backward pass is over"
    if not isinstance(optimizer, GradientMethod) or kind.update is not GradientMethod.update:
        return f"{kind.__name__} has an update of its own"
    for name in (*METHODS, "update_loss_scale"):
        if name in vars(optimizer) or getattr(kind, name) is not getattr(GradientMethod, name):
            return f"{kind.__name__} has a {name} of its own"
    if optimizer._loss_scale is not None or optimizer._loss_scaling_is_dynamic:
        return "the loss is scaled: gradients are checked together"
    if not getattr(optimizer, "_use_cleargrads", True):
        return "gradients are set to zero, not cleared"
    for hook in _hooks(optimizer):
        if type(hook) not in HOOKS:
            name = getattr(hook, "name", type(hook).__name__)
            return f"the hook {name} may read several gradients, or draw random numbers"
    parameters = list(optimizer.target.params())
    if len({id(param) for param in parameters}) < len(parameters):
        return "links share a parameter, and Chainer updates it once for each"
    rules = [id(param.update_rule) for param in parameters if param.update_rule is not None]
    if len({*rules}) < len(rules):
        return "parameters share an update rule, and with it the state"
    return next(filter(None, map(_reason_against_rule, parameters)), None)


def _reason_against_rule(param: Any) -> str | None:
    rule = param.update_rule
    if type(param) not in (chainer.Parameter, SwappedParameter):
        return f"the class {type(param).__name__} of a parameter is not known"
    if rule is None:
        return None
    if type(rule) not in ELEMENTWISE or any(map(callable, vars(rule).values())):
        return f"the update rule {type(rule).__name__} is not known to look at one parameter alone"
    if rule._use_fp32_update:
        return "parameters are updated in float32"
    hyperparam = rule.hyperparam
    while hyperparam is not None:
        if type(hyperparam) is not Hyperparameter:
            return f"the class {type(hyperparam).__name__} of hyperparameters is not known"
        hyperparam = hyperparam.parent
    for hook in _hooks(rule):
        if type(hook) not in HOOKS:
            return f"the update rule's hook {getattr(hook, 'name', type(hook).__name__)} is not known"
    return None


def reason_in(functions: Iterable[Any], early: EarlyUpdate) -> str | None:
    """Return why parameters cannot be updated while these functions run backward; None if they can."""
    if chainer.is_debug() or {"raise", "call"} & {*np.geterr().values()}:
        return "an error in a number ends the backward pass"
    mine = early.memory
    hooks = [*chainer.get_function_hooks().values()]
    for function in functions:
        if not is_known(function):
            return f"{function.label} is the program's own, and its backward may do anything"
        hooks += function.local_function_hooks.values() if function._n_local_function_hooks else ()
        for node in function.inputs:
            if node.creator_node is None and id(node.get_variable_or_none()) not in early.parameters:
                for begin, end in _ranges([node.data]):
                    at = bisect_right(mine, (end, 0))
                    if at and mine[at - 1][1] > begin:
                        return f"an input of {function.label} has the memory of a parameter, or of its state"
    for hook in hooks:
        if not type(hook).__module__.startswith("chainer."):
            return f"the function hook {hook.name} is the program's own"
    return None


def _written(parameters: Iterable[Any]) -> list[Any]:
    """Return what updates write on: parameters, and what is in memory of their states, numbers included."""
    found = []
    for param in parameters:
        found.append(in_memory(param))
        state = None if param.update_rule is None else param.update_rule._state
        if type(state) is dict:
            found += state.values()
    return found


def _ranges(arrays: Iterable[Any]) -> list[tuple[int, int]]:
    """Return the addresses of the arrays among these, in order: each as (first, end)."""
    ranges = []
    types = chainer.get_array_types()
    for array in arrays:
        if not isinstance(array, types) or array.size == 0:
            continue
        # `ctypes` takes longer.
        begin = array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr
        end = begin + array.nbytes
        if not array.flags.forc:
            reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
            end = begin + array.itemsize + sum(each for each in reach if each > 0)
            begin += sum(each for each in reach if each < 0)
        ranges.append((begin, end))
    return sorted(ranges)


def _hooks(hooked: Any) -> list[Any]:
    return [*hooked._hookable._pre_update_hooks.values(), *hooked._hookable._post_update_hooks.values()]


# --- what is done -----------------------------------------------------------------------------------------------------


class Consumed(chainer.Variable):  # type: ignore[misc]
    """Stands for the gradient of a parameter that was updated early: whatever reads it gets a `ScheduleError`.

    It is in the place of the gradient's variable, and of Chainer's mark that a gradient may be read, which copies of
    the parameter take over. Clearing or setting the gradient removes both. What a backward pass adds to it goes, too.
    """

    def __init__(self, parameter: str | None) -> None:
        self._parameter, self._moves = parameter, False

    def refuse(self, *_: Any) -> NoReturn:
        """Raise the error."""
        raise ScheduleError(
            f"the gradient of the parameter {self._parameter} is gone: the parameter was updated in the backward pass, "
            "as soon as the gradient was complete; expected early_updates=False where a program reads gradients after "
            "the update, or cleargrads() before it adds to them"
        )

    array = property(refuse)
    __bool__ = refuse

    @property
    def _data(self) -> list[None]:
        moves, self._moves = self._moves, False
        return [None] if moves else self.refuse()

    def put(self, parameter: Any) -> None:
        """Stand for this parameter's gradient."""
        parameter._set_grad_without_check(None)
        parameter._grad_var = parameter._grad_valid = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.refuse()

    def __repr__(self) -> str:
        return f"<the gradient of {self._parameter}, consumed>"

    __str__ = __repr__

    def __deepcopy__(self, memo: Any = None) -> Consumed:
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> Any:
        return bool, ()  # not to be read, as Chainer says it: a file needs no stowplan

    def _to_device(self, *_: Any, **__: Any) -> None:
        self._moves = True  # with its parameter: Chainer takes up what it is there, nothing


def gradient_of(param: Any) -> Any:
    """Return the array of a parameter's gradient; None if it has none, or none that may be read."""
    return param.grad if param._grad_valid is True else None


class EarlyUpdate:
    """One update of an optimizer: of each parameter when `ready` is called for it, of the others in `finish`.

    Parameters
    ----------
    optimizer
        A `chainer.Optimizer` for which `reason_against` returns None.
    is_checked
        Whether no parameter is updated early where the backward pass runs code of the program's (`reason_in`).

    Attributes
    ----------
    parameters
        Those that are not yet updated, by their ids.
    has_begun
        Whether one is updated.
    memory
        The addresses that the update writes on, in order.
    """

    def __init__(self, optimizer: Any, is_checked: bool) -> None:
        self._optimizer, self.is_checked = optimizer, is_checked
        self.parameters = {id(param): param for param in optimizer.target.params()}
        self.has_begun = False
        self.memory = _ranges(_written(self.parameters.values()))

    def reason(self) -> str | None:
        """Return why no parameter can be updated before all gradients are there; None if some can."""
        for (_, end), (begin, _) in pairwise(self.memory):
            if end > begin:
                return "parameters, or states, share memory: one would be read after the other's update"
        return None

    def ready(self, param: Any, owned: bool) -> None:
        """Update a parameter whose gradient is complete, and clear the gradient.

        Parameters
        ----------
        param
            One of `parameters`.
        owned
            Whether nothing else refers to the gradient's array. Hooks change it in place, so an array that two
            parameters share waits for `finish`, as it would with Chainer.
        """
        if owned or not _hooks(self._optimizer):
            self._update([param])

    def finish(self) -> None:
        """Update the remaining parameters, by zeros if they have no gradient, as Chainer does; count the update."""
        left = [*self.parameters.values()]
        for param in left:
            if param.array is not None and param.grad is None:
                with chainer.using_device(param.device):
                    param._set_grad(param.device.xp.zeros_like(param.raw_array), layout_check=False)
        self._update(left)
        self._optimizer.t += 1
        self._optimizer._loss_scaling_isnan = False

    def _update(self, parameters: list[Any]) -> None:
        self.has_begun = True
        for param in parameters:
            del self.parameters[id(param)]
        hooks = self._optimizer._hookable
        for hook in hooks._pre_update_hooks.values():
            for param in parameters:
                call_hook_in_pieces(hook, param)
        for param in parameters:
            if param.update_rule is not None:
                update_in_pieces(param)
        for hook in hooks._post_update_hooks.values():
            for param in parameters:
                call_hook_in_pieces(hook, param)
        for param in parameters:
            if gradient_of(param) is not None:
                Consumed(param.name).put(param)


class Updates:
    """Replaces an optimizer's `update` while it is entered, as a step does while it runs.

    Parameters
    ----------
    step
        The step, which gets the reason if gradients are kept.
    optimizer
        The optimizer that the program has.
    early
        As for `Scheduler`.
    """

    def __init__(self, step: ScheduledStep, optimizer: Any, early: bool | None) -> None:
        self._step, self._outer, self._wanted = step, optimizer, early
        self._optimizer = behind(optimizer)
        self._early: EarlyUpdate | None = None
        self._is_over = False

    def __enter__(self) -> None:
        self._own = vars(self._optimizer).get("update")
        self._optimizer.update = self.update
        if self._wanted:
            self._step.before_backward = self._begin

    def __exit__(self, *error: object) -> None:
        early, self._early = self._early, None
        self._is_over = True
        if (
            vars(self._optimizer).get("update") == self.update
        ):  # else the program has put its own there meanwhile
            del vars(self._optimizer)["update"]
            if self._own is not None:
                self._optimizer.update = self._own
        if early is not None and early.has_begun:
            self._step.is_half_updated = True
            if error[0] is None:
                raise ScheduleError(
                    "the step ended without optimizer.update(), and its backward pass has updated parameters; expected "
                    "early_updates=None, or step(schedule=False) for such a step"
                )

    def _original(self) -> Callable[..., None]:
        update: Callable[..., None] = self._own or type(self._optimizer).update.__get__(self._optimizer)
        return update

    def _begin(self) -> None:
        """Let the backward pass that is about to begin update parameters, if nothing speaks against it."""
        step = self._step
        if self._early is not None and self._early.has_begun:
            raise ScheduleError(
                "a second backward pass before optimizer.update(), and the first one has updated parameters; expected "
                "early_updates=None, or step(schedule=False) for such a step"
            )
        if self._wanted is False or not step.releases:
            return
        reason = reason_against(self._outer) or (NESTED if step.nested else None)
        if reason is None:
            early = EarlyUpdate(self._outer, is_checked=not self._wanted)
            reason = early.reason()
        if reason is None:
            step.early = self._early = early
        else:
            step.keep_gradients(reason)

    def update(self, lossfun: Any = None, *args: Any, **named: Any) -> None:
        """Update the parameters, as `chainer.GradientMethod.update`."""
        optimizer, step = self._optimizer, self._step
        if self._is_over:  # the program has kept this method
            self._original()(lossfun, *args, **named)
            return
        step.updates += 1
        step.before_backward = None
        if self._own is not None or type(optimizer).update is not GradientMethod.update:
            self._original()(lossfun, *args, **named)
        else:
            if lossfun is not None:
                self._run_backward(lossfun(*args, **named))
            elif not self._wanted:
                step.keep_gradients(reason_against(self._outer) or BY_HAND)
            early, step.early = step.early, None
            step.update_rest(self._original() if early is None else early.finish)
            self._early = None
        step.updated(optimizer.target.params())

    def _run_backward(self, loss: Any) -> None:
        if getattr(self._optimizer, "_use_cleargrads", True):
            self._optimizer.target.cleargrads()
        else:
            self._optimizer.target.zerograds()
        if type(loss) is chainer.Variable:
            self._begin()
        loss.backward(loss_scale=self._optimizer._loss_scale)
