"""The names of PyTorch's that are not public, each with what it is for. No other file of this package has one.

All are in 2.11, the oldest version that is served, and in `TRIED`, the newest that was; a comment names what came
later. Nothing of PyTorch's is replaced. A newer version than `TRIED` warns once, when this package is imported.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch._dispatch.python import no_python_dispatcher  # leaves out decompositions in Python
from torch._dynamo import convert_frame, exc  # exc: what Dynamo raises; ObservedException: the program's own
from torch._dynamo.backends.common import aot_autograd  # the documented way to write a backend
from torch._dynamo.backends.debugging import boxed_nop  # runs a graph as it is
from torch._dynamo.convert_frame import compile_lock  # who traces has it
from torch._dynamo.eval_frame import OptimizedModule  # what torch.compile makes of a module
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables.torch import tracing_state_functions  # that tell whether a program is compiled
from torch._functorch.partitioners import get_default_op_list  # what inductor fuses
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (  # tensors without bytes
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.distributions import Distribution
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.nn.modules import module as modules
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils import _pytree as pytree  # trees of arguments

# modes that see operators as they run
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
)
from torch.utils._python_dispatch import (
    _disable_current_modes as outside_modes,
)

TRIED = (2, 15)
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

if VERSION > TRIED:
    warnings.warn(
        f"stowplan.torch was tried with PyTorch {TRIED[0]}.{TRIED[1]} at most, and this is {torch.__version__}",
        stacklevel=2,
    )

BY_VALUES = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
"""What is raised where tensors without bytes will not do."""

autocast_mode = torch.amp.autocast_mode
ENTER_AUTOCAST, EXIT_AUTOCAST = autocast_mode._enter_autocast, autocast_mode._exit_autocast
"""Where autocast begins and ends in Dynamo's graph."""

ONE_HOT = (torch.nn.functional.one_hot, torch._C._nn.one_hot)

dynamo, functorch, inductor = torch._dynamo, torch._functorch, torch._inductor


GUARDS = {
    "skip_nnmodule_hook_guards": False,
    "skip_no_tensor_aliasing_guards_on_parameters": False,
    "skip_tensor_guards_with_matching_dict_tags": False,
    "assume_dunder_attributes_remain_unchanged": False,
    "allow_rnn": True,
    "trace_numpy": False,
}
"""Dynamo settings: all guards that it can make, of which it leaves out some by default; nothing of NumPy, whose
functions it would replace by PyTorch's."""


class _Functions(dict[Any, Any]):
    """Functions as a setting of Dynamo's, whose log is JSON, and sorts sets before 2.13: to it these are {}."""

    def __init__(self, functions: set[Any]) -> None:
        super().__init__()
        self._functions = functions

    def __contains__(self, one: object) -> bool:
        return one in self._functions

    def __iter__(self) -> Iterator[Any]:
        return iter(self._functions)


def loggers() -> _Functions:
    """Return the functions that a graph leaves out: transformers gives ``Logger`` two of them when it is imported."""
    names = ["debug", "info", "warning", "error", "exception", "critical", "log", "warning_once", "info_once"]
    return _Functions({getattr(logging.Logger, name, None) for name in names} - {None})


def optimize(function: Any, backend: Any, failed: Any) -> Any:
    """Return what ``torch.compile`` does of a function, one graph by `GUARDS`; `failed` is told which guard fails."""
    context = torch._dynamo.optimize(backend, nopython=True, dynamic=False, guard_fail_fn=failed)
    context.enter_exit_hooks.append(
        torch._dynamo.config._make_closure_patcher(**GUARDS, ignore_logging_functions=loggers())
    )
    return context(function)


def is_dynamos_file(name: str) -> bool:
    """Whether Dynamo traces by code of that file."""
    return bool(name == convert_frame.__file__)


def traced() -> Any:
    """Return what Dynamo is at: ``traced_code``, ``side_effects``, ``guards``, ``global_scope``, ``local_scope``."""
    return InstructionTranslator.current_tx().output


def lines_that_ask() -> str:
    """Return where the program that Dynamo is at asks whether it is compiled, which only then is true.

    Dynamo guards the function that is asked, under whatever name.
    """
    asked = {id(one) for one, answer in tracing_state_functions().items() if answer}
    found: dict[str, None] = {}
    for guard in traced().guards:
        if guard.create_fn_name() in GUARDS_OF_FUNCTIONS and id(_value(guard)) in asked:
            lines = guard.user_stack[-2:]  # the function that asks often does nothing else
            if lines[-1].filename != modules.__file__:  # which asks how to raise an error
                found[" > ".join(f"{line.filename}:{line.lineno}" for line in lines)] = None
    return ", ".join(found)


def _value(guard: Any) -> Any:
    """Return what a guard of the graph that Dynamo is at is of."""
    return eval(guard.name, {"G": traced().global_scope, "L": traced().local_scope})


GUARDS_OF_FUNCTIONS = ("CLOSURE_MATCH", "FUNCTION_MATCH")


def compiled_functions() -> str:
    """Return the functions, scripted or compiled, that Dynamo has traced by their Python code."""
    found = [_value(guard) for guard in traced().guards if guard.name.endswith("._torchdynamo_inline")]
    return ", ".join(dict.fromkeys(getattr(one, "__qualname__", str(one)) for one in found))


def replaced_functions(graph: Any) -> str:
    """Return the functions of a Dynamo graph that others have replaced where they look themselves up, to dispatch."""
    targets = {node.target for node in graph.nodes if isinstance(node.target, FunctionType)}
    return ", ".join(
        f"{one.__module__}.{one.__name__}"
        for one in targets
        if getattr(sys.modules.get(one.__module__), one.__name__, one) is not one
    )


@contextmanager
def as_outside() -> Iterator[None]:
    """Have what a backend runs compute as outside of a graph.

    It is told that it is not compiled, by which PyTorch's functions decide; it draws what random numbers nothing reads.
    """
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = False
    try:
        with torch._inductor.config.patch(fallback_random=True):  # they are no dead code
            yield
    finally:
        torch.compiler._is_compiling_flag = before


def validates() -> bool:
    """Whether ``torch.distributions`` checks values: Dynamo, once it has traced, turns the checks off for good."""
    return bool(Distribution._validate_args)


@contextmanager
def validating(checks: bool) -> Iterator[None]:
    """Have ``torch.distributions`` check values here, or not."""
    before = validates()
    Distribution.set_default_validate_args(checks)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


_GLOBAL_HOOKS = [name for name in dir(modules) if re.fullmatch("_global_.*_hooks", name)]
_saved_hooks, _eval_frame = torch._C._autograd._top_saved_tensors_default_hooks, torch._dynamo.eval_frame

ELSEWHERE: dict[str, Callable[[], bool]] = {
    "there are hooks on tensors that autograd saves": lambda: _saved_hooks(False) is not None,
    "there are hooks on all modules": lambda: any(getattr(modules, name) for name in _GLOBAL_HOOKS),
    "a dispatch mode is on": lambda: any(
        not one.ignore_compile_internals() for one in _get_current_dispatch_mode_stack()
    ),
    "torch.compile is off": lambda: bool(torch._dynamo.config.disable),
    "torch.compiler.set_stance leaves graphs out": lambda: _eval_frame._stance.stance != "default",
    "anomalies are looked for": torch.is_anomaly_enabled,
}
"""What no graph of a step has, around the step."""


def has_hooks(tensor: Any) -> bool:
    """Whether a tensor's gradient has hooks."""
    return bool(tensor._backward_hooks) or bool(getattr(tensor, "_post_accumulate_grad_hooks", None))


def hooks_on_step(optimizer: Any) -> str | None:
    """Return whose hooks an optimizer's step runs."""
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return "the optimizer has hooks on its step"
    if _global_optimizer_pre_hooks or _global_optimizer_post_hooks:
        return "there are hooks on the step of all optimizers"
    return None


def has_stepped(optimizer: Any) -> None:
    """Tell schedulers of learning rates that an optimizer has made a step."""
    optimizer._opt_called = True


def schema_of(target: Any) -> Any:
    """Return what an operator takes, returns and writes."""
    return target._schema


def key_of(storage: Any) -> int:
    """Return the address of a storage, with or without bytes."""
    return int(storage._cdata)


def pack_like(graph: Any, other: Any) -> None:
    """Let a graph pack arguments and results as another does."""
    graph.set_codegen(other._codegen)


def results_of(graph: Any) -> Any:
    """Return how a graph packs its results."""
    return graph._codegen.pytree_info.out_spec


def pack(graph: Any, names: list[str], arguments: Any, results: Any) -> None:
    """Let a graph take such arguments and return such results."""
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, arguments, results)))


def copy_sources(module: Any, found: Any, nodes: list[tuple[Any, Any]], prefix: str) -> None:
    """Copy what AOTAutograd adds guards by, from a Dynamo graph to one that calls it."""
    for old, new in nodes:
        new._dynamo_source = old._dynamo_source
    if hasattr(module, "_param_name_to_source"):
        found._param_name_to_source = {
            f"{prefix}{name}": one for name, one in module._param_name_to_source.items()
        }


def partitioner(partition: Callable[..., Any], uuid: Callable[[], str]) -> Any:
    """Return what inductor's option ``custom_partitioner_fn`` expects; `uuid` keeps graphs apart in its caches."""
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class Partitioner(CustomPartitionerFn):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return partition(*args, **kwargs)

        def uuid(self) -> str:
            return uuid()

        def __reduce__(self) -> Any:
            """Let inductor copy its options, in which it has no other use of this."""
            return partitioner, (partition, uuid)

    return Partitioner()
