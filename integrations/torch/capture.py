"""A function of tensors as one graph of ATen operators: captured and guarded by Dynamo, made functional by AOTAutograd.

::

    function       Dynamo         a graph of PyTorch functions, and guards on all that it was made from; a call that
                                  fails one makes another graph
                   AOTAutograd    forward and backward as one graph of ATen operators without writes in place, but for
                                  buffers, which are written at its end
    joint graph    the backend    makes what is to run in its place: all of it, the backward pass included
    call           Dynamo         runs what was made for such a call; which tensor is which parameter comes from its
                                  arguments

`eager` lets its operators give the bits of the program outside of a graph.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any, NoReturn
from weakref import proxy

import torch
from torch.fx import Graph, GraphModule, Node

from ..common.errors import GraphError, StowplanError
from . import seams
from .eager import DECOMPOSITIONS, as_eager, casts_of
from .graph_errors import is_dynamos, not_captured
from .joint import normal, refuse
from .nodes import LIBRARY

LIBRARY.define("loss(Tensor loss) -> Tensor")
LIBRARY.impl("loss", lambda loss: loss.view_as(loss), "CompositeImplicitAutograd")
LOSS = torch.ops.stowplan.loss
"""Names the loss in a function that is captured; in no graph that runs."""

Call = Callable[..., Any]


class LimitReachedError(Exception):
    """As many graphs were made as PyTorch's ``torch._dynamo.config.recompile_limit`` allows."""


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
        Whether a program that asks whether it is compiled is refused. False: it warns.
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
        self._validates = True
        with seams.compile_lock, seams.validating(False):
            self._compiled = seams.optimize(
                own,
                lambda module, inputs: captured._make(module, inputs),
                lambda failure: captured._failed(failure),
            )

    def __call__(self, *args: Any) -> Any:
        """Run what was made for such a call; make it first, if there is nothing yet.

        Raises
        ------
        GraphError
            The function is not one graph of operators, or asks whether it is compiled. What the backend raises passes
            as it is.
        LimitReachedError
            Too many graphs were made.
        """
        try:
            with seams.compile_lock:  # as long as another thread traces, Dynamo refuses to run anything
                self._validates = seams.validates()
                with seams.validating(False):
                    return self._compiled(*args)
        except seams.exc.FailOnRecompileLimitHit as error:
            raise LimitReachedError(self.reason) from error
        except seams.exc.BackendCompilerFailed as error:
            inner = error.inner_exception
            if isinstance(inner, StowplanError | LimitReachedError):  # without PyTorch's frames and advice
                raise inner.with_traceback(None) from None
            raise not_captured(error) from error
        except Exception as error:
            if isinstance(error, seams.exc.TorchDynamoException) or is_dynamos(error):
                raise not_captured(error) from error
            raise

    def _make(self, module: GraphModule, _: Sequence[Any]) -> Call:
        arguments = [node.meta.get("grapharg") for node in module.graph.find_nodes(op="placeholder")]
        if any(one is None or not one.is_tensor for one in arguments):
            raise GraphError(
                "the step draws from Python's random, or its sizes are symbols; expected tensors"
            )
        if any(one.pass_arg_as_tensor for one in arguments):
            raise GraphError(
                "the step reads a number of NumPy's, which a graph would compute with as a tensor; expected a "
                "Python number, made outside of the step"
            )
        tensors = [one.example for one in arguments]
        for kind in {type(one) for one in tensors} - {torch.Tensor, torch.nn.Parameter}:
            raise GraphError(
                f"the step reads a {kind.__name__}, a kind of tensors of its own; expected PyTorch's"
            )
        if compiled := seams.compiled_functions():
            raise GraphError(
                f"the step calls {compiled}, scripted or compiled, which may compute otherwise than its Python code; "
                "expected the function itself"
            )
        require_unreplaced(module.graph)
        if lines := seams.lines_that_ask():
            what = f"the step asks whether it is compiled ({lines}), and may compute otherwise than in plain PyTorch"
            if self._strict:
                raise GraphError(f"{what}; expected a step that does not ask, or strict=False")
            warnings.warn(f"stowplan: {what}", stacklevel=2)
        number, kept = take_loss(module)
        with seams.as_outside():
            made = self._backend(module, tensors, number)
        self.reason, captured = None, proxy(self)  # Dynamo keeps what it calls for good

        def run(*args: Any) -> Any:
            seams.compile_lock.release()
            try:
                with seams.validating(captured._validates):
                    results = made(*args)
            finally:
                seams.compile_lock.acquire()
            # What the program has detached may be the very tensor that it keeps, or a view of it.
            results = [
                one if k in kept or not isinstance(one, torch.Tensor) else one.detach()
                for k, one in enumerate(results)
            ]
            return [
                _Kept.apply(_PAST, [one]) if k in kept and not one.requires_grad else one
                for k, one in enumerate(results)
            ]

        return run

    def _failed(self, failure: Any) -> None:
        self.reason = str(failure.reason).strip().partition("\n")[0]


def require_unreplaced(graph: Graph) -> None:
    """Raise if the graph would call what has replaced a function of PyTorch's, and that the function, twice."""
    if replaced := seams.replaced_functions(graph):
        raise GraphError(
            f"{replaced} was replaced by a function that calls it; expected another name for that one"
        )


class _Kept(torch.autograd.Function):  # type: ignore[misc]
    """The loss, and what forward keeps: they require gradients as in plain PyTorch, and their graph has been run."""

    @staticmethod
    def forward(_: Any, past: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
        """Return the one tensor, itself and no view of it, as one that was computed from what requires a gradient."""
        return kept[0]

    @staticmethod
    def backward(_: Any, *gradients: Any) -> Any:
        """Raise as PyTorch does."""
        raise RuntimeError("Trying to backward through the graph of a scheduled step, which has run backward")


_PAST = torch.empty(0, requires_grad=True)


def take_loss(module: GraphModule) -> tuple[int, set[int]]:
    """Return which result of Dynamo's graph the loss is, and which require gradients; all but the loss are detached."""
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
    kept = {number}
    with module.graph.inserting_before(output):
        for k, result in enumerate(results):
            value = result.meta.get("example_value") if isinstance(result, Node) else None
            if k != number and isinstance(value, torch.Tensor) and value.requires_grad:
                results[k] = module.graph.call_method("detach", (result,))
                results[k].meta["example_value"] = value.detach()
                kept.add(k)
    output.args = (tuple(mark.args[0] if one is mark else one for one in results),)
    mark.replace_all_uses_with(mark.args[0])
    module.graph.erase_node(mark)
    module.recompile()
    return number, kept


class _Traced(Exception):  # noqa: N818 (no error)
    """Ends what AOTAutograd does once its graph is there."""


def joint_of(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """Return a Dynamo graph's forward and backward as one graph: its results, then a gradient or None for each input.

    Parameters
    ----------
    module, inputs
        Dynamo's graph, and its inputs. One result requires a gradient: the loss (see `take_loss`).
    """
    found: list[GraphModule] = []

    def partition(joint: GraphModule, _: Any, *, num_fwd_outputs: int, **__: Any) -> NoReturn:
        refuse(joint.graph)
        if num_fwd_outputs != len(module.graph.output_node().args[0]):
            raise GraphError(
                "operators of the step have effects (a check of torch.linalg's), or it writes on inputs that require "
                "gradients; expected neither"
            )
        found.append(joint)
        raise _Traced

    def inference(_: GraphModule, __: Any) -> NoReturn:
        raise GraphError("the loss depends on no parameter; expected one that requires a gradient")

    casts = casts_of(module)
    with suppress(_Traced):
        seams.aot_autograd(
            fw_compiler=inference,
            partition_fn=partition,
            decompositions=DECOMPOSITIONS,
            keep_inference_input_mutations=True,
        )(as_eager(module), list(inputs))
    return normal(found[0], len(inputs), casts)
