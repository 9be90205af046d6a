"""What decides what a step does and no guard of PyTorch's sees: looked at before each step, or refused.

==================  ==================================================================================================
`surroundings`      another one makes another plan: classes' forward, switches of PyTorch's backends
`situation`         the same of a call's own tensors: their groups, gradients, hooks, and memory that they share
`ELSEWHERE`         what no graph has: the step runs as plain PyTorch runs it
``require_...``     what no graph can have: the step is refused before anything has run
==================  ==================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo
from torch import nn
from torch.nn.modules import module as modules
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ..errors import GraphError, ScheduleError
from .updates import are_shared, group_of


def situation(tensors: Sequence[Any], optimizer: torch.optim.Optimizer) -> Any:
    """Return what a plan takes as given of a call's tensors and no guard of PyTorch's sees."""
    groups = group_of(optimizer)
    return are_shared(optimizer, tensors), *(
        (groups.get(id(one)), one.is_leaf, one.is_leaf and one.grad is not None, _has_hooks(one))
        for one in tensors
        if one.requires_grad
    )


def _has_hooks(tensor: Any) -> bool:
    return bool(tensor._backward_hooks) or bool(getattr(tensor, "_post_accumulate_grad_hooks", None))


def require_own_gradient(tensor: Any) -> None:
    """Raise if a gradient is to go where no graph of the step leads."""
    what = f"a tensor of shape {tuple(tensor.shape)} that the step reads"
    if tensor.requires_grad and not tensor.is_leaf:
        raise GraphError(
            f"{what} was computed from others that require gradients; expected it detached, or computed in the loss"
        )
    if tensor.requires_grad and _has_hooks(tensor):
        raise GraphError(f"{what} has hooks on its gradient, which no graph calls; expected none")


def surroundings(model: nn.Module) -> Any:
    """Return what decides which operators run and no guard of PyTorch's sees."""
    flags = torch.backends.cuda
    return (
        frozenset((type(one), type(one).forward) for one in model.modules()),
        (nn.Module.__call__, nn.Module._call_impl),
        torch.backends.mkldnn.enabled,
        flags.flash_sdp_enabled(),
        flags.mem_efficient_sdp_enabled(),
        flags.math_sdp_enabled(),
    )


def require_no_autocast() -> None:
    """Raise if autocast is on: outside of the step it keeps casts of parameters over steps."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    for kind in ("cpu", *(() if device is None else (device.type,))):
        if torch.is_autocast_enabled(kind):
            raise ScheduleError(
                "autocast is on around the step; expected it inside the loss, where it is captured"
            )


ELSEWHERE: dict[str, Callable[[], bool]] = {
    "there are hooks on tensors that autograd saves": lambda: (
        torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
    ),
    "there are hooks on all modules": lambda: any(
        getattr(modules, name) for name in dir(modules) if re.fullmatch("_global_.*_hooks", name)
    ),
    "a dispatch mode is on": lambda: any(
        not one.ignore_compile_internals() for one in _get_current_dispatch_mode_stack()
    ),
    "torch.compile is off": lambda: bool(torch._dynamo.config.disable),
}
"""What no graph of a step has, around the step."""


def require_alone(model: nn.Module) -> None:
    """Raise if gradients are reduced over processes as they come: by what no graph has."""
    kinds = {type(one).__name__ for one in (*model.modules(), *model.parameters())}
    wrapped = next((name for name in _DISTRIBUTED if name in kinds), None)
    if any(torch.nn.parameter.is_lazy(one) for one in (*model.parameters(), *model.buffers())):
        raise GraphError(
            "the model has lazy modules, which make their parameters in forward; expected one call of it before"
        )
    if wrapped is not None:
        raise GraphError(
            f"the model is distributed ({wrapped}), and gradients would not be reduced; expected the module itself, "
            "with torch.distributed.all_reduce of the gradients in before_update"
        )


_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel", "DTensor")
