"""Update a parameter as soon as its gradient is complete, and free the gradient at once.

Chainer updates all parameters when the backward pass is over, and keeps their gradients until the next step's has
begun. The update of one parameter reads and writes nothing of another's, so nothing changes, bit by bit, if it comes
early, as long as

- the parameter is not read any more: the backward steps of all its readers are over;
- no hook looks at several gradients at once (clipping by the global norm, loss scaling with its checks) or draws random
  numbers in the order of parameters (gradient noise), and the program does not read gradients after the update.

`reason_against` finds such reasons in an optimizer. It knows Chainer's own rules and hooks; any other one is a reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import chainer
import numpy as np
from chainer import optimizer_hooks
from chainer.optimizer import GradientMethod

from ..errors import ScheduleError
from .parameter_swap import in_memory
from .updates import ELEMENTWISE, ELEMENTWISE_HOOKS, call_hook_in_pieces, update_in_pieces

__all__ = ["EarlyUpdate", "behind", "reason_against", "require_set_up"]

HOOKS = ELEMENTWISE_HOOKS | {optimizer_hooks.GradientLARS}
"""Hooks that look at one parameter at a time and draw no random numbers."""


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


def reason_against(optimizer: Any) -> str | None:
    """Return why an optimizer's parameters cannot be updated early; None if they can.

    Parameters
    ----------
    optimizer
        A `chainer.Optimizer` that has been set up.
    """
    if behind(optimizer) is not optimizer:
        return "gradients are averaged over all ranks when the backward pass is over"
    if type(optimizer).update is not GradientMethod.update or not isinstance(optimizer, GradientMethod):
        return f"{type(optimizer).__name__} has an update of its own"
    if type(optimizer).reallocate_cleared_grads is not GradientMethod.reallocate_cleared_grads:
        return f"{type(optimizer).__name__} treats missing gradients in its own way"
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
    if _any_overlap(parameters):
        return "parameters share memory: one would be read after the other's update"
    for param in parameters:
        rule = param.update_rule
        if rule is None:
            continue
        if type(rule) not in ELEMENTWISE:
            return f"the update rule {type(rule).__name__} is not known to look at one parameter alone"
        if rule._use_fp32_update:
            return "parameters are updated in float32"
        for hook in _hooks(rule):
            if type(hook) not in HOOKS:
                return f"the update rule's hook {getattr(hook, 'name', type(hook).__name__)} is not known"
    return None


def _any_overlap(parameters: Iterable[Any]) -> bool:
    ranges = []
    for array in map(in_memory, parameters):
        if array is None or array.size == 0:
            continue
        address = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
        reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
        begin, end = (sum(each for each in reach if (each > 0) == up) for up in (False, True))
        ranges.append((address + begin, address + end + array.itemsize))
    ranges.sort()
    return any(end > begin for (_, end), (begin, _) in pairwise(ranges))


def _hooks(hooked: Any) -> list[Any]:
    return [*hooked._hookable._pre_update_hooks.values(), *hooked._hookable._post_update_hooks.values()]


class EarlyUpdate:
    """One update of an optimizer: of each parameter when `ready` is called for it, of the others in `finish`.

    Parameters
    ----------
    optimizer
        A `chainer.Optimizer` for which `reason_against` returns None.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._parameters = {id(param): param for param in optimizer.target.params()}
        self._done: set[int] = set()

    @property
    def has_begun(self) -> bool:
        """Whether a parameter is updated."""
        return bool(self._done)

    def takes(self, param: Any) -> bool:
        """Whether a variable is one of the optimizer's parameters, and not yet updated."""
        return id(param) in self._parameters and id(param) not in self._done

    def ready(self, param: Any, owned: bool) -> None:
        """Update a parameter whose gradient is complete, and clear the gradient.

        Parameters
        ----------
        param
            A parameter that this `takes`.
        owned
            Whether nothing else refers to the gradient's array. Hooks change it in place, so an array that two
            parameters share waits for `finish`, as it would with Chainer.
        """
        if owned or not _hooks(self._optimizer):
            self._done.add(id(param))
            self._update([param])

    def finish(self) -> None:
        """Update the remaining parameters, by zeros if they have no gradient, as Chainer does; count the update."""
        for key in self._done:
            if self._parameters[key]._grad_var is not None:
                raise ScheduleError(
                    f"the parameter {self._parameters[key].name} has got a gradient after its early update; "
                    "expected one backward pass that reaches it"
                )
        left = [param for key, param in self._parameters.items() if key not in self._done]
        for param in left:
            if param.array is not None and param.grad is None:
                with chainer.using_device(param.device):
                    param._set_grad(param.device.xp.zeros_like(param.raw_array), layout_check=False)
        self._done.update(map(id, left))
        self._update(left)
        self._optimizer.t += 1
        self._optimizer._loss_scaling_isnan = False

    def _update(self, parameters: list[Any]) -> None:
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
            param.cleargrad()
