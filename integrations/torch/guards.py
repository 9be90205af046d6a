"""What decides what a step does and no guard of PyTorch's sees: looked at before each step, or refused.

==================  ==================================================================================================
`surroundings`      another one makes another plan: classes' methods, switches of PyTorch's backends
`traced_methods`    the same of other classes that the graph has methods of
`situation`         the same of a call's own tensors: their groups, gradients, hooks, and memory that they share
`ELSEWHERE`         what no graph has: the step runs as plain PyTorch runs it
``require_...``     what no graph can have: the step is refused before anything has run
==================  ==================================================================================================
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.eval_frame import OptimizedModule
from torch._dynamo.mutation_guard import install_generation_tagging_init
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch.nn.modules import module as modules
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ..errors import GraphError, ScheduleError
from .updates import are_shared, group_of

install_generation_tagging_init()  # as Dynamo does where it first traces: it changes a method of nn.Module


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
    own = [model, *model.modules()]
    kinds = {type(one) for one in own} | {type(value) for one in own for value in vars(one).values()}
    classes = {one for kind in kinds for one in kind.__mro__ if one.__flags__ & _MAY_CHANGE} | {torch.Tensor}
    return (
        frozenset(zip(classes, map(methods, classes), strict=True)),
        torch.backends.mkldnn.enabled,
        flags.flash_sdp_enabled(),
        flags.mem_efficient_sdp_enabled(),
        flags.math_sdp_enabled(),
    )


def traced_methods() -> dict[type, tuple[Any, ...]]:
    """Return the program's classes of which the graph that Dynamo is at has methods, and their subclasses.

    With what `methods` returns for each now. A walk over all classes there are: some hundredths of a second.
    """
    traced = set(InstructionTranslator.current_tx().output.traced_code)
    every = _below([object])
    own = (
        kind
        for kind in every
        if not traced.isdisjoint(methods(kind)) and not str(kind.__module__).startswith("torch.")
    )
    return {kind: methods(kind) for kind in _below(own)}


def _below(kinds: Iterable[type]) -> set[type]:
    """Return classes and their subclasses."""
    found: set[type] = set()
    left = list(kinds)
    while left:
        kind = left.pop()
        if kind not in found:
            found.add(kind)
            left += type.__subclasses__(kind)
    return found


def methods(kind: type) -> tuple[Any, ...]:
    """Return what attributes of a class are computed by, with the code of functions. Data have PyTorch guards."""
    found: list[Any] = []
    for value in vars(kind).values():
        if isinstance(value, FunctionType):
            found += (value, value.__code__)
        elif hasattr(type(value), "__get__") and getattr(type(value), "__hash__", None) is object.__hash__:
            function = getattr(value, "__func__", getattr(value, "fget", None))
            found += (value, getattr(function, "__code__", None))
    return tuple(found)


_MAY_CHANGE = 1 << 9
"""Of a type's ``__flags__``: Py_TPFLAGS_HEAPTYPE, classes that a program may assign to."""


def require_no_effects(optimizer: torch.optim.Optimizer, *, calls_program: bool) -> None:
    """Raise if the forward pass that Dynamo is at does what it would do after the step, which has updated by then.

    Warn where the update calls functions of the program's, which would see what forward writes in plain PyTorch.
    """
    translator = InstructionTranslator.current_tx()
    effects = translator.output.side_effects
    if effects.tensor_hooks:
        raise GraphError(
            "forward hangs a hook on the gradient of a tensor that the step reads; expected it before the step"
        )
    groups, states = optimizer.param_groups, optimizer.state
    own = {id(one) for one in (groups, states, *groups, *states.values())}
    if any(key in own and effects.is_modified(one) for key, one in effects.id_to_variable.items()):
        raise GraphError(
            "forward writes on the optimizer's state or options, or reads state that is not there; expected neither"
        )
    written = [one for one in effects.id_to_variable.values() if one.source and effects.is_modified(one)]
    if calls_program and written:
        names = ", ".join(sorted({one.source.name for one in written}))
        warnings.warn(
            f"stowplan: forward writes on Python objects ({names}); before_update and hooks on the optimizer see "
            "them as they were before the step",
            stacklevel=2,
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
    "torch.compiler.set_stance leaves graphs out": lambda: (
        torch._dynamo.eval_frame._stance.stance != "default"
    ),
    "anomalies are looked for": torch.is_anomaly_enabled,
}
"""What no graph of a step has, around the step."""


def require_alone(model: nn.Module) -> None:
    """Raise if gradients are reduced over processes as they come: by what no graph has."""
    kinds = {type(one).__name__ for one in (*model.modules(), *model.parameters())}
    wrapped = next((name for name in _DISTRIBUTED if name in kinds), None)
    made = next((name for name, one in model.named_modules() if isinstance(one, _COMPILED)), None)
    if made is not None:
        raise GraphError(
            f"{made or 'the model'} is compiled or a script, and may compute otherwise than its Python code; expected "
            "the module itself"
        )
    if any(torch.nn.parameter.is_lazy(one) for one in (*model.parameters(), *model.buffers())):
        raise GraphError(
            "the model has lazy modules, which make their parameters in forward; expected one call of it before"
        )
    if wrapped is not None:
        raise GraphError(
            f"the model is distributed ({wrapped}), and gradients would not be reduced; expected the module itself, "
            "with torch.distributed.all_reduce of the gradients in before_update"
        )


_COMPILED = (OptimizedModule, torch.jit.ScriptModule)
_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel", "DTensor")
