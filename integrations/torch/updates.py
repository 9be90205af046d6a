"""The optimizer's part of a step: what is done with gradients as they come, as operators of the graph.

While the step is planned this is ``stowplan::update(parameters, gradients, number)``, an operator that PyTorch's
dispatcher knows, so that the step graph sees what it reads and writes. When the step runs it is an `Update`, which has
the user's optimizer update these parameters alone, or leaves the gradients to later steps::

    parameter.grad = gradient        optimizer.step(), with one group of these parameters        parameter.grad = None

A gradient that an earlier step has left is added to, as autograd does. A parameter's update depends on nothing but its
gradient and its state in the optimizers of ``ELEMENTWISE``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn, optim
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from ..errors import ScheduleError
from .nodes import define

ELEMENTWISE = (
    optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam, optim.RMSprop, optim.Adagrad,
    optim.Adadelta, optim.ASGD, optim.Rprop,
)  # fmt: skip
"""Optimizers that treat each element of a parameter for itself."""

BeforeUpdate = Callable[[], object]

UPDATE = define(
    "update(Tensor(a!)[] parameters, Tensor[] gradients, int number) -> ()",
    lambda parameters, gradients, number: None,
)

LAID_OUT = define(
    "laid_out(Tensor gradient, Tensor parameter) -> Tensor",
    lambda gradient, parameter: torch.empty_like(parameter, dtype=gradient.dtype).copy_(gradient),
)
"""A copy of a gradient in its parameter's layout, which autograd makes where a gradient has another."""


class Update(nn.Module):  # type: ignore[misc]
    """Takes the gradients of some parameters as they come.

    Parameters
    ----------
    optimizer
        The user's; None: gradients are left in ``grad``.
    arguments, numbers
        The parameters are these of the arguments of the step that runs.
    group
        Number of the group that all of them are in; None: they are all that get gradients, for one call of the
        optimizer.
    before
        Called when all gradients are in ``parameter.grad``.
    """

    def __init__(
        self,
        optimizer: optim.Optimizer | None,
        arguments: Sequence[torch.Tensor],
        numbers: Sequence[int],
        group: int | None = None,
        before: BeforeUpdate | None = None,
    ) -> None:
        super().__init__()
        self._optimizer, self._arguments, self._numbers = optimizer, arguments, tuple(numbers)
        self._group, self._before = group, before

    def forward(self, gradients: list[torch.Tensor]) -> None:
        """Update the parameters, or add to what their ``grad`` is; the list of gradients is emptied."""
        parameters: list[Any] = [self._arguments[number] for number in self._numbers]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad.add_(gradient)
        if self._optimizer is None:
            return
        if self._group is None:
            update_all(self._optimizer, self._before)
            return
        try:
            _step_alone(self._optimizer, self._group, parameters)
        finally:
            for parameter in parameters:
                parameter.grad = None


def left(optimizer: optim.Optimizer) -> list[Any]:
    """Return the optimizer's parameters that have gradients."""
    every = (one for group in optimizer.param_groups for one in group["params"])
    return [one for one in every if one.grad is not None]


def update_all(optimizer: optim.Optimizer, before: BeforeUpdate | None) -> None:
    """Update every parameter that has a gradient, and drop the gradients: those of earlier steps, too."""
    try:
        if before is not None:
            before()
        optimizer.step()
    finally:
        for parameter in left(optimizer):
            parameter.grad = None


def _step_alone(optimizer: optim.Optimizer, number: int, parameters: list[nn.Parameter]) -> None:
    """Let the optimizer update these parameters of a group only, by the group's own options.

    Without what `torch.optim.Optimizer` puts around ``step`` (hooks, a record for the profiler, the mode of gradients):
    there are no hooks then, and the mode is set for the whole step. It costs more than the update of a small parameter.
    """
    groups = optimizer.param_groups
    group = groups[number]
    every = group["params"]
    group["params"], optimizer.param_groups = parameters, [group]
    try:
        inspect.unwrap(type(optimizer).step)(optimizer)
        optimizer._opt_called = True  # what schedulers of learning rates look for
    finally:
        group["params"], optimizer.param_groups = every, groups


def require_served(optimizer: object) -> None:
    """Raise unless the optimizer is one of ``ELEMENTWISE``."""
    if type(optimizer) not in ELEMENTWISE:
        names = ", ".join(kind.__name__ for kind in ELEMENTWISE)
        raise ScheduleError(
            f"optimizer is {type(optimizer).__name__}; expected one of torch.optim that updates each element for "
            f"itself: {names}"
        )


def reason_against_early(optimizer: optim.Optimizer, before: BeforeUpdate | None) -> str | None:
    """Return why all gradients have to be there before the first update; None if they need not."""
    if before is not None:
        return "before_update reads all gradients"
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return "the optimizer has hooks on its step"
    own, step = vars(optimizer).get("step"), type(optimizer).step
    while step is not None and step.__code__.co_filename.startswith(str(Path(torch.__file__).parent)):
        step = getattr(step, "__wrapped__", None)
    if step is not None or (own is not None and not hasattr(own, "_wrapped_by_lr_sched")):
        return "the optimizer's step is the program's own"
    if _global_optimizer_pre_hooks or _global_optimizer_post_hooks:
        return "there are hooks on the step of all optimizers"
    return None


def group_of(optimizer: optim.Optimizer) -> dict[int, int]:
    """Return the number of the group of each parameter, by its id."""
    return {
        id(parameter): k for k, group in enumerate(optimizer.param_groups) for parameter in group["params"]
    }


def layout_of(optimizer: optim.Optimizer) -> Any:
    """Return what an optimizer's updates are planned by: parameters, which have gradients, and options but rates.

    Of numbers only whether they are zero matters.
    """
    return tuple(
        (
            tuple((id(one), one.grad is not None) for one in group["params"]),
            tuple(
                (name, _is_set(one))
                for name, one in group.items()
                if name not in ("params", "lr", "initial_lr")
            ),
        )
        for group in optimizer.param_groups
    )


def _is_set(option: Any) -> Any:
    several = math.prod(getattr(option, "shape", ())) != 1  # which PyTorch's optimizers have none of
    return id(option) if several else bool(option)


def are_shared(optimizer: optim.Optimizer, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether what an update writes overlaps what another one, or the backward pass, is still to read.

    From the first to the last byte of each tensor, whatever its storage. O(n log n) for n tensors.
    """
    parameters = {id(one): one for group in optimizer.param_groups for one in group["params"]}
    written: list[Any] = [*parameters.values(), *(one.grad for one in parameters.values())]
    written += [one for key in parameters.values() for one in optimizer.state.get(key, {}).values()]
    read = [one for one in inputs if id(one) not in parameters]
    rows = [
        (*_first_and_last(one), writes)
        for tensors, writes in ((written, True), (read, False))
        for one in tensors
        if isinstance(one, torch.Tensor) and one.numel()
    ]
    last = {True: -1, False: -1}  # so far: of what is written, and of what is only read
    for first, end, writes in sorted(rows):
        if first <= last[True] or (writes and first <= last[False]):
            return True
        last[writes] = max(last[writes], end)
    return False


def _first_and_last(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of a tensor's first and last byte."""
    first = tensor.data_ptr()
    if tensor.is_contiguous():
        return first, first + tensor.nbytes - 1
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (steps + 1) * tensor.itemsize - 1
