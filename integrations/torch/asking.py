"""Whether a program that asks if it is compiled computes the same in plain PyTorch.

Dynamo lets ``torch.compiler.is_compiling()`` and its siblings return True; a plain run does not. `noting` notes who
asks while a step is captured. Then `difference` holds the captured graph against a plain run, forward and backward::

    graph          what Dynamo has made               both on tensors without bytes: the name of a result is made of its
    plain run      model and loss, copied             operator and the names of what that takes

Equal names are equal bits. These tensors are a `_Blank`: programs check for PyTorch's ``FakeTensor``, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import nn
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable, tracing_state_functions
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Interpreter
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..profiler.unbroken import unbroken
from .graph_errors import BY_VALUES, line_of

aten = torch.ops.aten

HARMLESS = (nn.modules.module.__file__,)
"""Files that ask how to raise an error, not what to compute."""

SAME = (aten.detach.default, aten.alias.default, aten.lift_fresh.default)
"""Operators whose results are what they take."""


_lines: ContextVar[dict[str, None] | None] = ContextVar("stowplan_lines_that_ask", default=None)


@contextmanager
def noting(asked: dict[str, None]) -> Iterator[None]:
    """Add the lines of the program that ask while Dynamo traces them; what it runs is told what a plain run is."""
    _prepare()
    token = _lines.set(asked)
    try:
        yield
    finally:
        _lines.reset(token)


@cache
def _prepare() -> None:
    """Let Dynamo note who asks, and set no flag, where there is a `noting`; for good, as other threads may trace."""
    handlers = TorchInGraphFunctionVariable._get_handlers()

    def noted(handler: Callable[..., Any]) -> Callable[..., Any]:
        def note(function: Any, tx: Any, *args: Any) -> Any:
            lines = _lines.get()
            if lines is not None and tx.f_code.co_filename not in HARMLESS:
                lines[f"{function.value.__name__}() at {tx.f_code.co_filename}:{tx.lineno}"] = None
            return handler(function, tx, *args)

        return note

    told = [function for function, answer in tracing_state_functions().items() if answer]
    handlers.update({one: noted(handlers[one]) for one in told})
    flagged = torch.compiler._compile_session_context
    torch.compiler._compile_session_context = lambda: flagged() if _lines.get() is None else nullcontext()


@unbroken
def difference(
    function: Callable[..., Any], args: Sequence[Any], module: GraphModule, inputs: Sequence[Any], loss: int
) -> str | None:
    """Return in what a graph differs from a plain run of a function, which returns the loss; None: in nothing.

    Parameters
    ----------
    function, args
        Run plainly, on copies of the arguments.
    module, inputs, loss
        Dynamo's graph of that, the program's tensors that it takes, and which of its results the loss is.
    """
    try:
        graph, plain = _Names(inputs), _Names(inputs)
        found = graph.of(Interpreter(module).run, inputs, loss)
        with torch.random.fork_rng(devices=()):
            expected = plain.of(function, args)
    except BY_VALUES as error:
        return f"plain PyTorch reads values{line_of(error)}"
    except Exception as error:  # the function's: no signal's handler runs here
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        return f"a run on tensors without bytes fails{line_of(error)} ({what})"
    first = next((one for key, one in graph.made.items() if key not in plain.made), None)
    if first is not None:
        return f"the first operator that is not plain PyTorch's is {first}"
    if found != expected:
        left = next((one for key, one in plain.made.items() if key not in graph.made), "an order")
        return f"the first operator of plain PyTorch that it leaves out is {left}"
    return None


class _Blank(torch.Tensor):  # type: ignore[misc]
    """A tensor without bytes, and the name of what made it."""

    fake: FakeTensor
    label: int

    @staticmethod
    def __new__(cls, fake: FakeTensor, name: int) -> _Blank:
        kept = {"dtype": fake.dtype, "layout": fake.layout, "device": fake.device}
        place = fake.shape, fake.stride(), fake.storage_offset()
        made: _Blank = torch.Tensor._make_wrapper_subclass(cls, *place, **kept)
        made.fake, made.label = fake, name
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        raise NotImplementedError(f"{func} on a tensor without bytes, after its run")


class _Names(TorchDispatchMode):  # type: ignore[misc]
    """Runs operators on tensors without bytes, and names each result."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.made: dict[int, str] = {}  # operators, by the names of their results
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._known: dict[int, tuple[Any, _Blank]] = {}  # by tensors with bytes, which stay alive
        self._written: dict[int, int] = {}  # by storages: the name of what wrote to it last
        self._alive: list[Any] = []  # so that no storage comes where another was
        self._draws = 0
        self._inputs = [self._of(one, hash(("input", k))) for k, one in enumerate(inputs)]

    def of(self, function: Callable[..., Any], args: Sequence[Any], loss: int = 0) -> Any:
        """Return the names of the loss, of gradients and of what is written, and how many draws there were."""
        for model in args:
            if isinstance(model, nn.Module):
                for one in (*model.parameters(), *model.buffers()):
                    self._of(one, id(one))
        own = copy.deepcopy(list(args), {key: blank for key, (_, blank) in self._known.items()})
        with self, torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
            results = pytree.tree_leaves(function(*own))
            leaves = [one for one in self._inputs if one.requires_grad]
            gradients = torch.autograd.grad(results[loss], leaves, allow_unused=True)
        names = [None if one is None else self._name(one) for one in (results[loss], *gradients)]
        known = [(one.label, self._written.get(_storage(one))) for _, one in self._known.values()]
        return names, self._draws, {label: name for label, name in known if name is not None}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._of, (args, kwargs or {}))
        leaves = pytree.tree_leaves((args, kwargs))
        taken = [self._name(one) if isinstance(one, _Blank) else repr(one) for one in leaves]
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        self._draws += is_random
        name = hash((str(func), is_random and self._draws, *taken))
        if func not in SAME:
            self.made.setdefault(name, str(func))
        with self._fake:
            given = pytree.tree_map_only(_Blank, lambda one: one.fake, (args, kwargs))
            result = func(*given[0], **given[1])
        named = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
        for one in func._schema.arguments:
            if one.alias_info is not None and one.alias_info.is_write:
                for blank in pytree.tree_leaves(named.get(one.name)):
                    self._written[_storage(blank)] = name
        same = {id(one.fake): one for one in leaves if isinstance(one, _Blank)}

        def blank_of(k: int, one: Any) -> Any:
            if not isinstance(one, FakeTensor) or id(one) in same:
                return same.get(id(one), one)
            self._alive.append(one)
            return _Blank(one, leaves[0].label if func in SAME else hash((name, k)))

        flat, spec = pytree.tree_flatten(result)
        return pytree.tree_unflatten([blank_of(k, one) for k, one in enumerate(flat)], spec)

    def _of(self, tensor: torch.Tensor, name: int | None = None) -> _Blank:
        """Return the tensor without bytes of one with bytes: if it is no input, named by its bytes."""
        if isinstance(tensor, _Blank):
            return tensor
        if id(tensor) not in self._known:
            if name is None:
                raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                name = hash((tensor.shape, tensor.dtype, raw.numpy().tobytes()))
            blank = _Blank(self._fake.from_tensor(tensor), name)
            blank._is_param = isinstance(tensor, nn.Parameter)
            self._known[id(tensor)] = tensor, blank.requires_grad_(tensor.requires_grad)
        return self._known[id(tensor)][1]

    def _name(self, blank: _Blank) -> int:
        return hash((blank.label, self._written.get(_storage(blank))))


def _storage(blank: _Blank) -> int:
    return int(blank.fake.untyped_storage()._cdata)
