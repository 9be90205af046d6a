"""What decides what a step does and no guard of PyTorch's sees: looked at before each step, or refused.

==================  ==================================================================================================
`Classes`           another method of one of them makes another plan
`switches`          the same of PyTorch's backends
`situation`         the same of a call's own tensors: their groups, gradients, hooks, and memory that they share
``require_...``     what no graph can have: the step is refused before anything has run
==================  ==================================================================================================
"""

from __future__ import annotations

import dis
import re
import sysconfig
import warnings
from collections.abc import Iterable, Sequence
from operator import is_
from types import FunctionType
from typing import Any

import torch
from torch import nn

from ..common.errors import GraphError, ScheduleError
from .seams import OptimizedModule, has_hooks, traced
from .updates import PYTORCH, are_shared, group_of


def situation(tensors: Sequence[Any], optimizer: torch.optim.Optimizer) -> Any:
    """Return what a plan takes as given of a call's tensors and no guard of PyTorch's sees."""
    groups = group_of(optimizer)
    return are_shared(optimizer, tensors), *(
        (groups.get(id(one)), one.is_leaf, one.is_leaf and one.grad is not None, has_hooks(one))
        for one in tensors
        if one.requires_grad
    )


def switches() -> Any:
    """Return PyTorch's switches that decide which operators run, and that no guard of PyTorch's sees."""
    flags = torch.backends.cuda
    return (
        torch.backends.mkldnn.enabled,
        flags.flash_sdp_enabled(),
        flags.mem_efficient_sdp_enabled(),
        flags.math_sdp_enabled(),
    )


class Classes:
    """The classes of which the graph that Dynamo is at may have methods, as they are now.

    Those of the modules and of what these keep, their bases, tensors', and the program's own that Dynamo has traced
    methods of, with their subclasses. To find these is a walk over all classes there are: some hundredths of a second.
    """

    def __init__(self, model: nn.Module) -> None:
        own = list(model.modules())
        kinds = {type(one) for one in own} | {type(value) for one in own for value in vars(one).values()}
        code = set(traced().traced_code)
        kinds |= _below(
            kind
            for kind in _below([object])
            if not code.isdisjoint(methods(kind)) and not str(kind.__module__).startswith("torch.")
        )
        changeable = (one for kind in kinds for one in kind.__mro__ if one.__flags__ & _MAY_CHANGE)
        self._kinds = [*{*changeable, torch.Tensor}]
        # Dynamo guards what is in an object's __dict__, and not what is missing there.
        asks = any(
            one.co_name == "__getattr__" or {"__dict__", "vars"} & {*one.co_names}
            for one in code
            if not one.co_filename.startswith(PYTORCH)
        )
        kept = [value for one in own for value in vars(one).values() if hasattr(value, "__dict__")]
        self._looked_in = (
            [*own, *{id(one): one for one in kept if not callable(one)}.values()] if asks else []
        )
        self._keys = self._every_key()
        self._methods = self._every_method()
        self._functions = [one for _, row in self._methods for one in row if isinstance(one, FunctionType)]
        self._seen = self._see()

    def have_changed(self) -> bool:
        """Whether their bases or methods are others; without a look at methods while all attributes are the same."""
        if self._keys != self._every_key():
            return True
        now = self._see()
        if len(now) != len(self._seen) or not all(map(is_, now, self._seen)):
            if self._every_method() != self._methods:
                return True
            self._seen = now
        return False

    def _every_key(self) -> list[Any]:
        return [tuple(vars(one)) for one in self._looked_in]

    def _see(self) -> list[Any]:
        seen = [one for kind in self._kinds for one in (kind.__mro__, *vars(kind).values())]
        return seen + [one.__code__ for one in self._functions]

    def _every_method(self) -> list[tuple[Any, ...]]:
        return [(kind.__mro__, methods(kind)) for kind in self._kinds]


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
    """Return what attributes of a class are computed by: functions, each with its code. Data have PyTorch guards."""
    found: list[Any] = []
    for name, value in vars(kind).items():
        if kind is nn.Module and name in _DYNAMOS:
            continue
        if hasattr(type(value), "__get__") and getattr(type(value), "__hash__", None) is object.__hash__:
            function = getattr(value, "__func__", getattr(value, "fget", value))
            found += (value, function, function.__code__) if isinstance(function, FunctionType) else (value,)
    return tuple(found)


_DYNAMOS = ("__init__", "__setstate__")
"""Methods of ``torch.nn.Module`` that Dynamo replaces where it first traces."""

_MAY_CHANGE = 1 << 9
"""Of a type's ``__flags__``: Py_TPFLAGS_HEAPTYPE, classes that a program may assign to."""


def require_no_effects(optimizer: torch.optim.Optimizer, *, calls_program: bool) -> None:
    """Raise if the forward pass that Dynamo is at does what it would do after the step, which has updated by then.

    Warn where the update calls functions of the program's, which would see what forward writes in plain PyTorch.
    """
    effects = traced().side_effects
    if effects.tensor_hooks:
        raise GraphError("forward hangs a hook on the gradient of a tensor; expected it before the step")
    groups, states = optimizer.param_groups, optimizer.state
    own = {id(one) for one in (groups, states, *groups, *states.values())}
    if any(key in own and effects.is_modified(one) for key, one in effects.id_to_variable.items()):
        raise GraphError(
            "forward writes on the optimizer's state or options, or reads state that is not there; expected neither"
        )
    written = [one for one in effects.id_to_variable.values() if one.source and effects.is_modified(one)]
    if calls_program and written:
        names = ", ".join(sorted({one.source.name for one in written}))
        what = f"forward writes on Python objects ({names}); before_update and hooks on the optimizer see"
        warnings.warn(f"stowplan: {what} them as they were before the step", stacklevel=2)


def require_no_catch() -> None:
    """Raise if the program that Dynamo is at catches that something is missing: no guard sees when it is there."""
    for code in traced().traced_code:
        caught = sorted(_MISSING & {*code.co_names})
        if not caught or _LIBRARY.match(code.co_filename):
            continue
        if "suppress" in code.co_names or any(one.opname in _CATCH for one in dis.get_instructions(code)):
            raise GraphError(
                f"the step catches {caught[0]} at {code.co_filename}:{code.co_firstlineno} {code.co_name}, and no "
                "guard sees what was missing; expected 'in', hasattr, or a default of getattr or dict.get"
            )


def require_no_autocast() -> None:
    """Raise if autocast is on: outside of the step it keeps casts of parameters over steps."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    for kind in ("cpu", *(() if device is None else (device.type,))):
        if torch.is_autocast_enabled(kind):
            raise ScheduleError(
                "autocast is on around the step; expected it inside the loss, which is captured"
            )


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
        raise GraphError("the model has lazy modules, without parameters yet; expected one call of it before")
    if wrapped is not None:
        raise GraphError(
            f"the model is distributed ({wrapped}), and gradients would not be reduced; expected torch.compile of it, "
            "with stowplan.torch.compile_backend, or the module itself, with all_reduce of gradients in before_update"
        )


_LIBRARY = re.compile(
    rf"<frozen |{re.escape(PYTORCH)}|{re.escape(sysconfig.get_paths()['stdlib'])}/(?!site-packages)"
)
_MISSING = {"AttributeError", "KeyError", "LookupError"}
_CATCH = ("CHECK_EXC_MATCH", "JUMP_IF_NOT_EXC_MATCH")  # of Python 3.11 on, and 3.10
_COMPILED = (OptimizedModule, torch.jit.ScriptModule)
_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel", "DTensor")
