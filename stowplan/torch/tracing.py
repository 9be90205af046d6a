"""Trace a module to a graph of ATen operators, by `torch.fx.experimental.proxy_tensor.make_fx`.

The module runs once, on tensors that have shapes and no bytes (`FakeTensor`), so that nothing is computed and nothing
is changed; each operator that reaches PyTorch's dispatcher becomes a node, views and writes in place as they are.
`make_fx` serves inference and training alike, where `torch.export` ends at the loss. What runs in a training step is::

    forward    the module, the loss
    backward   the gradients of all parameters that the loss depends on (torch.autograd.grad)
    update     parameter.add_(gradient, alpha=-learning_rate), if there is a learning rate

A step that is to run operators again is *functional*: writes in place on what the step itself has made become
operators with results of their own, which remember in ``meta[IN_PLACE]`` what they were; ``detach`` and ``alias`` are
left out.

Parameters and buffers are attributes of the graph module, the module's own tensors. They and the inputs are read
through ``detach``: nothing that the graph module computes is recorded by autograd, which would hold on to it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from ..errors import GraphError
from ..scheduling.graph import Phase
from .nodes import PHASE, require_numbers
from .shrinking import shrink

BY_VALUES = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
"""What PyTorch raises where tensors without bytes will not do."""

State = dict[str, torch.Tensor]

def trace(module: torch.nn.Module, inputs: Sequence[Any]) -> GraphModule:
    """Trace a module's forward without gradients: inference.

    What PyTorch runs as one operator in evaluation mode (`torch.backends.mha`: layers of a Transformer's encoder) is
    traced as the operators that it consists of, which may give other last bits.

    Parameters
    ----------
    module
        Traced as it is, in training or in evaluation mode.
    inputs
        Its positional arguments: tensors, or tuples, lists and dictionaries of them. Only shapes, types and numbers
        other than tensors matter; these become part of the graph.

    Returns
    -------
    GraphModule
        Called with such inputs it returns what the module returns, and shares the module's parameters and buffers.
    """

    def step(tensors: State, args: tuple[Any, ...]) -> Any:
        with torch.no_grad():
            return torch.func.functional_call(module, tensors, args)

    return _traced(step, _state(module), tuple(inputs))


def trace_training(
    module: torch.nn.Module,
    inputs: Sequence[Any],
    loss: Callable[..., torch.Tensor],
    targets: Sequence[Any] = (),
    *,
    learning_rate: float | None = None,
    functional: bool = False,
) -> GraphModule:
    """Trace a training step: forward, backward and, with a learning rate, the update of gradient descent.

    Parameters
    ----------
    module, inputs
        As for `trace`.
    loss
        Called with what the module returns, and the targets; returns a tensor of one element.
    targets
        Further arguments of the loss, which the graph module takes after the inputs.
    learning_rate
        Of ``parameter.add_(gradient, alpha=-learning_rate)``, what `torch.optim.SGD` does without momentum. None: no
        update.
    functional
        Whether only parameters, buffers and inputs are written in place, so that all else can be made again.

    Returns
    -------
    GraphModule
        Called with inputs and targets it returns the loss and changes the module's parameters; or, without an update,
        returns the loss and a dictionary of gradients by the parameters' names.

    Raises
    ------
    GraphError
        The loss depends on no parameter.
    """
    count = len(inputs)

    def step(tensors: State, args: tuple[Any, ...]) -> Any:
        leaves = {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}
        with _autocast_cache():
            found = loss(torch.func.functional_call(module, tensors, args[:count]), *args[count:])
        if not found.requires_grad:
            raise GraphError("the loss depends on no parameter; expected one that requires a gradient")
        every = torch.autograd.grad(found, list(leaves.values()), allow_unused=True)
        gradients = {name: one for name, one in zip(leaves, every, strict=True) if one is not None}
        if learning_rate is None:
            return found, gradients
        with torch.no_grad():
            for name, gradient in gradients.items():
                leaves[name].add_(gradient, alpha=-learning_rate)
        return found

    traced = _traced(step, _state(module), (*inputs, *targets), functional=functional)
    _mark_phases(traced.graph)
    return traced


@contextmanager
def _autocast_cache() -> Iterator[None]:
    """Let autocast cast a parameter once, as outside of `make_fx`: gradients of its readers then meet in few bits."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(True)
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(before)


def _state(module: torch.nn.Module) -> State:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _traced(
    step: Callable[[State, tuple[Any, ...]], Any],
    state: State,
    args: tuple[Any, ...],
    *,
    functional: bool = False,
) -> GraphModule:
    """Trace a function of a state, detached, and of arguments; the state becomes attributes of the graph module."""

    def flat(tensors: list[torch.Tensor], args: tuple[Any, ...]) -> Any:
        # Whether a tensor of the module requires a gradient is left as it is: which operators run may depend on it,
        # even without gradients (`torch.matmul` asks).
        own = (tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors)
        args = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, args)
        return step(dict(zip(state, own, strict=True)), args)

    # Tensors outside of the state (a constant made in forward) become attributes as well.
    values = list(state.values())
    try:
        traced = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)(values, args)
    except BY_VALUES as error:
        raise by_values(error) from None
    require_numbers(traced.graph)
    graph: Graph = traced.graph
    shrink(graph)
    placeholders = graph.find_nodes(op="placeholder")
    attributes: dict[str, Any] = {
        node.target: _attribute(traced, node.target) for node in graph.find_nodes(op="get_attr")
    }
    first = next((node for node in graph.nodes if node.op != "placeholder"), None)
    for node, (name, tensor) in zip(placeholders, state.items(), strict=False):
        attributes[name] = tensor
        with graph.inserting_before(first):
            replacement = graph.create_node("get_attr", name)
        replacement.meta = node.meta
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)
    _take(graph, args)
    module = GraphModule(attributes, graph, type(traced).__name__)
    module.graph.lint()
    return module


def by_values(error: Exception) -> GraphError:
    """Return an error in the place of one of `BY_VALUES`; it names the program's line, where there is one."""
    libraries = ("<", str(Path(torch.__file__).parent), str(Path(__file__).parent))
    frames = traceback.extract_tb(error.__traceback__)
    program = [frame for frame in frames if not frame.filename.startswith(libraries)]
    where = f" at {program[-1].filename}:{program[-1].lineno} {program[-1].name}" if program else ""
    what = str(error).strip().partition("\n")[0]
    return GraphError(
        f"the step depends on values{where} ({what}); expected operators and shapes that do not"
    )


def _attribute(module: torch.nn.Module, target: str) -> Any:
    found: Any = module
    for name in target.split("."):
        found = getattr(found, name)
    return found


def _take(graph: Graph, args: tuple[Any, ...]) -> None:
    """Make the generated code take only these arguments, each of them a tree of tensors."""
    codegen = graph._codegen
    codegen.pytree_info = codegen.pytree_info._replace(
        orig_args=[f"input_{i}" for i in range(len(args))], in_spec=pytree.tree_structure(args)
    )


def _mark_phases(graph: Graph) -> None:
    """Set each node's phase: before the loss, the first of the results, or after it."""
    output = graph.find_nodes(op="output")[0]
    results: list[Node] = pytree.tree_leaves(output.args)
    phase = Phase.FORWARD
    for node in graph.nodes:
        node.meta[PHASE] = phase
        if node is results[0]:
            phase = Phase.BACKWARD
