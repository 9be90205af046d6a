"""A function of tensors as one graph of ATen operators: captured and guarded by Dynamo, made functional by AOTAutograd.

::

    function       Dynamo         a graph of PyTorch functions, and guards on all that it was made from; a call that
                                  fails one makes another graph
                   AOTAutograd    forward and backward as one graph of ATen operators without writes in place, but for
                                  buffers, which are written at its end
    joint graph    `rewrite`      what is to run in its place: all of it, the backward pass included
    call           Dynamo         runs what was made for such a call; which tensor is which parameter comes from its
                                  arguments

`eager` lets its operators give the bits of the program outside of a graph.

This module calls ``torch._dynamo.optimize``, which ``torch.compile`` calls, because it tells why a guard failed;
``aot_autograd``, the documented way to write a backend; and the marks and descriptions on the nodes of its joint graph.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any
from weakref import proxy

import torch
import torch._dynamo
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.exc import BackendCompilerFailed, FailOnRecompileLimitHit, TorchDynamoException
from torch.distributions import Distribution
from torch.fx import Graph, GraphModule, Node

from ..errors import GraphError, StowplanError
from .asking import difference, noting
from .eager import DECOMPOSITIONS, as_eager, casts_of
from .graph_errors import is_dynamos, not_captured
from .joint import normal
from .nodes import LIBRARY

LIBRARY.define("loss(Tensor loss) -> Tensor")
LIBRARY.impl("loss", lambda loss: loss.view_as(loss), "CompositeImplicitAutograd")
LOSS = torch.ops.stowplan.loss
"""Names the loss in a function that is captured; in no graph that runs."""

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

_LOGGED = ("debug", "info", "warning", "error", "exception", "critical", "log", "warning_once", "info_once")

Call = Callable[..., Any]
Rewrite = Callable[[GraphModule], GraphModule]


_checks: list[bool] = []
"""Whether ``torch.distributions`` checks values outside of what traces; under Dynamo's lock."""


@contextmanager
def _unvalidated() -> Iterator[None]:
    """Have ``torch.distributions`` check no values here; Dynamo, once it has traced, turns the checks off for good."""
    _checks.append(Distribution._validate_args)
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(_checks.pop())


class LimitReachedError(Exception):
    """As many graphs were made as PyTorch's ``torch._dynamo.config.recompile_limit`` allows."""


class _Asked(Exception):  # noqa: N818 (no error)
    """A graph of a program that asks whether it is compiled was to run, and nothing vouches for it yet."""

    def __init__(self, lines: Iterable[str], graph: tuple[GraphModule, list[Any], int]) -> None:
        super().__init__()
        self.lines = lines
        self.graph: tuple[GraphModule, list[Any], int] | None = graph
        self.what: str | None = None
        self.is_served = False


class Captured:
    """A function that runs as what a backend makes of its graph; each has guards and graphs of its own.

    Parameters
    ----------
    function
        Of a model and other arguments; returns the loss.
    backend
        Called with Dynamo's graph, its inputs, the program's own tensors, and which of its results the loss is; returns
        what runs.
    strict
        Whether a program that computes otherwise because it is compiled is refused. False: it warns.
    """

    def __init__(
        self, function: Call, backend: Callable[[GraphModule, list[Any], int], Call], *, strict: bool = False
    ) -> None:
        def step(*args: Any) -> Any:
            return LOSS(function(*args))

        code = step.__code__.replace()  # a copy, as Dynamo keeps graphs by code
        # Dynamo keeps what it makes in the globals of the code, and what it calls for good.
        own = FunctionType(code, dict(step.__globals__), step.__name__, None, step.__closure__)
        captured = proxy(self)
        self.reason: str | None = None
        self._function, self._backend, self._strict = function, backend, strict
        self._lines: dict[str, None] = {}  # that ask
        with compile_lock, _unvalidated():
            self._compiled = torch._dynamo.optimize(
                lambda module, inputs: captured._make(module, inputs),
                nopython=True,
                dynamic=False,
                guard_fail_fn=lambda failure: captured._failed(failure),
            )(own)

    def __call__(self, *args: Any) -> Any:
        """Run what was made for such a call; make it first, if there is nothing yet.

        Raises
        ------
        GraphError
            The function is not one graph of operators, or not that of plain PyTorch. What the backend raises passes as
            it is.
        LimitReachedError
            Too many graphs were made.
        """
        try:
            self._lines = {}
            logged = {getattr(logging.Logger, name) for name in _LOGGED if hasattr(logging.Logger, name)}
            with (
                compile_lock,  # as long as another thread traces, Dynamo refuses to run anything
                torch._dynamo.config.patch(GUARDS | {"ignore_logging_functions": logged}),
                _unvalidated(),
                noting(self._lines),
            ):
                return self._compiled(*args)
        except _Asked as asked:
            self._vouch(asked, args)
            return self(*args)
        except FailOnRecompileLimitHit as error:
            raise LimitReachedError(self.reason) from error
        except BackendCompilerFailed as error:
            inner = error.inner_exception
            raise (
                inner if isinstance(inner, (StowplanError, LimitReachedError)) else not_captured(error)
            ) from error
        except Exception as error:
            if isinstance(error, TorchDynamoException) or is_dynamos(error):
                raise not_captured(error) from error
            raise

    def _vouch(self, asked: _Asked, args: tuple[Any, ...]) -> None:
        """Hold a graph that these arguments have made against plain PyTorch; warn or raise if it differs."""
        if asked.graph is not None:
            what, asked.graph = difference(self._function, args, *asked.graph), None
            asked.with_traceback(None)  # which has the training's frames
            if what is not None:
                asked.what = (
                    f"the step asks whether it is compiled ({', '.join(asked.lines)}), and its graph may compute "
                    f"otherwise than plain PyTorch: {what}"
                )
        if asked.what is not None and self._strict:
            raise GraphError(f"{asked.what}; expected the same operators, or strict=False")
        if asked.what is not None:
            warnings.warn(f"stowplan: {asked.what}; last bits may differ", stacklevel=5)
        asked.is_served = True

    def _make(self, module: GraphModule, _: Sequence[Any]) -> Call:
        arguments = [node.meta.get("grapharg") for node in module.graph.find_nodes(op="placeholder")]
        if any(one is None or not one.is_tensor for one in arguments):
            raise GraphError(
                "the step draws Python's random numbers, or its sizes are symbols; expected tensors"
            )
        tensors = [one.example for one in arguments]
        kind = next(
            (type(one) for one in tensors if type(one) not in (torch.Tensor, torch.nn.Parameter)), None
        )
        if kind is not None:
            raise GraphError(
                f"the step reads a {kind.__name__}, a kind of tensors of its own; expected PyTorch's"
            )
        graph = module, tensors, take_loss(module)
        asked = _Asked(self._lines, graph)
        made = self._backend(*graph)
        asked.is_served = not asked.lines
        if asked.is_served:
            asked.graph = None  # which has the parameters
        self.reason = None

        def run(*args: Any) -> Any:
            if not asked.is_served:
                raise asked
            Distribution.set_default_validate_args(_checks[-1])
            compile_lock.release()
            try:
                return made(*args)
            finally:
                compile_lock.acquire()
                Distribution.set_default_validate_args(False)

        return run

    def _failed(self, failure: Any) -> None:
        self.reason = str(failure.reason).strip().partition("\n")[0]


def take_loss(module: GraphModule) -> int:
    """Return which result of Dynamo's graph the loss is; let the others be without gradients."""
    output = module.graph.find_nodes(op="output")[0]
    results = list(output.args[0])
    if module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.tag_activation_checkpoint):
        raise GraphError(
            "the step has torch.utils.checkpoint in it, which runs parts of forward twice; expected none: the budget "
            "decides what is recomputed"
        )
    marks = module.graph.find_nodes(op="call_function", target=LOSS)
    if not marks or marks[-1] not in results:
        raise GraphError("the loss is none of what the step computes; expected a tensor that it makes")
    mark = marks[-1]
    number = results.index(mark)
    loss = mark.meta["example_value"]
    if loss.numel() != 1 or not loss.is_floating_point():
        raise GraphError(
            f"the loss has shape {tuple(loss.shape)} and type {loss.dtype}; expected one floating-point element"
        )
    with module.graph.inserting_before(output):
        for k, result in enumerate(results):
            value = result.meta.get("example_value") if isinstance(result, Node) else None
            if k != number and isinstance(value, torch.Tensor) and value.requires_grad:
                results[k] = module.graph.call_method("detach", (result,))
                results[k].meta["example_value"] = value.detach()
    output.args = (tuple(mark.args[0] if one is mark else one for one in results),)
    mark.replace_all_uses_with(mark.args[0])
    module.graph.erase_node(mark)
    module.recompile()
    return number


def differentiated(module: GraphModule, inputs: Sequence[Any], rewrite: Rewrite) -> Call:
    """Return what runs in the place of a Dynamo graph: forward and backward in one call.

    Parameters
    ----------
    module, inputs
        Dynamo's graph, and its inputs. One result requires a gradient: the loss (see `take_loss`).
    rewrite
        Called with the joint graph, whose results are those of ``module``, then a gradient or None for each input;
        returns a graph module with the results of ``module``, which does what is to be done with the gradients.
    """

    def partition(
        joint: GraphModule, _: Any, *, num_fwd_outputs: int, **__: Any
    ) -> tuple[GraphModule, GraphModule]:
        if num_fwd_outputs != len(module.graph.find_nodes(op="output")[0].args[0]):
            raise GraphError(
                "operators of the step have effects (a check of torch.linalg's), or it writes on inputs that require "
                "gradients; expected neither"
            )
        tangent = next(one for one in joint.graph.nodes if one.name.startswith("tangents")).meta["val"]
        return rewrite(normal(joint, len(inputs), casts)), _backward(len(inputs), tangent)

    def compiler(graph: GraphModule, _: Any) -> Call:
        run: Call = make_boxed_func(graph.forward)
        return run

    def inference(_: GraphModule, __: Any) -> Call:
        raise GraphError("the loss depends on no parameter; expected one that requires a gradient")

    casts = casts_of(module)
    with torch._functorch.config.patch(donated_buffer=False):
        call: Call = aot_autograd(
            fw_compiler=compiler,
            bw_compiler=compiler,
            inference_compiler=inference,
            partition_fn=partition,
            decompositions=DECOMPOSITIONS,
            keep_inference_input_mutations=True,
        )(as_eager(module), list(inputs))
        return call


def _backward(inputs: int, tangent: torch.Tensor) -> GraphModule:
    """Return an empty backward graph: AOTAutograd expects one, and the forward graph has run the backward pass."""
    graph = Graph()
    graph.placeholder("tangents_1").meta = {"val": tangent}
    graph.output((None,) * inputs)
    return GraphModule({}, graph)
