"""Trace a module to a graph module of ATen operators, which takes what the module takes and shares its tensors.

Inference is traced by `torch.fx.experimental.proxy_tensor.make_fx`: the module runs once, on tensors that have shapes
and no bytes, and each operator that reaches PyTorch's dispatcher becomes a node, views and writes in place as they are.
A training step is captured as scheduled steps are (`capture`), so that nothing is written in place but parameters and
buffers, and what is made in the step can be made again::

    forward    the module, the loss
    backward   the gradients of all parameters that the loss depends on
    update     parameter.add_(gradient, alpha=-learning_rate), if there is a learning rate

Parameters and buffers are attributes of the graph module, the module's own tensors. They and the inputs are read
through ``detach``: nothing that the graph module computes is recorded by autograd, which would hold on to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from ..scheduling.graph import Phase
from .capture import Captured, joint_of
from .graph_errors import not_captured
from .nodes import PHASE, require_numbers, run_in_place
from .seams import BY_VALUES, pack, pytree, results_of
from .shrinking import shrink

DETACH = torch.ops.aten.detach.default


def trace(module: torch.nn.Module, inputs: Sequence[Any]) -> GraphModule:
    """Trace a module's forward without gradients: inference.

    What PyTorch runs as one operator in evaluation mode (``torch.backends.mha``: layers of a Transformer's encoder) is
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

    Raises
    ------
    GraphError
        The module depends on values.
    """
    state = _state_of(module)

    def flat(tensors: list[torch.Tensor], args: tuple[Any, ...]) -> Any:
        # Whether a tensor of the module requires a gradient is left as it is: which operators run may depend on it,
        # even without gradients (`torch.matmul` asks).
        own = (tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors)
        with torch.no_grad():
            return torch.func.functional_call(module, dict(zip(state, own, strict=True)), args)

    args, values = tuple(inputs), list(state.values())
    try:
        traced = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)(values, args)
    except BY_VALUES as error:
        raise not_captured(error) from None
    require_numbers(traced.graph)
    shrink(traced.graph)
    return _bound(module, traced, [*values, *pytree.tree_leaves(args)], args, results_of(traced.graph))


def trace_training(
    module: torch.nn.Module,
    inputs: Sequence[Any],
    loss: Callable[..., torch.Tensor],
    targets: Sequence[Any] = (),
    *,
    learning_rate: float | None = None,
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
        Of ``parameter.add_(gradient, alpha=-learning_rate)``, what ``torch.optim.SGD`` does without momentum. None: no
        update.

    Returns
    -------
    GraphModule
        Called with inputs and targets it returns the loss and changes the module's parameters; or, without an update,
        returns the loss and a dictionary of gradients by the parameters' names.

    Raises
    ------
    GraphError
        The step is not one graph of operators; or the loss depends on no parameter.
    """
    args, count = (*inputs, *targets), len(inputs)
    found: list[GraphModule] = []

    def loss_of(module: torch.nn.Module, *args: Any) -> torch.Tensor:
        return loss(module(*args[:count]), *args[count:])

    def make(captured: GraphModule, tensors: list[Any], number: int) -> Callable[..., NoReturn]:
        found.append(_training(module, joint_of(captured, tensors), tensors, number, args, learning_rate))

        def run(*_: Any) -> NoReturn:
            raise _Traced

        return run

    with suppress(_Traced), torch.enable_grad():
        Captured(loss_of, make)(module, *args)
    return found[0]


class _Traced(Exception):  # noqa: N818 (no error)
    """Ends a capture whose graph is all that is wanted."""


def _training(
    module: torch.nn.Module,
    joint: GraphModule,
    tensors: list[Any],
    number: int,
    args: tuple[Any, ...],
    learning_rate: float | None,
) -> GraphModule:
    graph, names = joint.graph, {id(one): name for name, one in module.named_parameters()}
    output = graph.find_nodes(op="output")[0]
    results = output.args[0]
    gradients = {}
    given = graph.find_nodes(op="placeholder")
    for node, tensor, gradient in zip(given, tensors, results[len(results) - len(tensors) :], strict=True):
        if gradient is not None and id(tensor) in names:
            gradients[names[id(tensor)]] = gradient
            if learning_rate is not None:
                arguments, options = (node, gradient), {"alpha": -learning_rate}
                with graph.inserting_before(output):
                    update = graph.call_function(torch.ops.aten.add_.Tensor, arguments, options)
                update.meta = {PHASE: Phase.UPDATE, "val": node.meta["val"]}
    ordered = {name: gradients[name] for name in names.values() if name in gradients}
    tree: Any = (results[number], ordered) if learning_rate is None else results[number]
    leaves, spec = pytree.tree_flatten(tree)
    output.args = (leaves,)
    graph.eliminate_dead_code()
    return _bound(module, joint, tensors, args, spec)


def _bound(
    module: torch.nn.Module, traced: GraphModule, tensors: Sequence[Any], args: tuple[Any, ...], results: Any
) -> GraphModule:
    """Return a graph module that takes arguments like these; the other inputs of the one traced become attributes.

    ``tensors`` are those of the placeholders, in their order.
    """
    graph, state = traced.graph, _state_of(module)
    names = {id(one): name for name, one in reversed(state.items())}
    # Tensors outside of the state (a constant made in forward) are attributes already.
    attributes = {node.target: getattr(traced, node.target) for node in graph.find_nodes(op="get_attr")}
    before = graph.find_nodes(op="placeholder")
    first = next(node for node in graph.nodes if node.op != "placeholder")
    given: dict[int, Node] = {}
    with graph.inserting_before(next(iter(graph.nodes))):
        for k, leaf in enumerate(pytree.tree_leaves(args)):
            given[id(leaf)] = graph.placeholder(f"argument_{k}")
            given[id(leaf)].meta["val"] = leaf
    for k, (node, tensor) in enumerate(zip(before, tensors, strict=True)):
        new = given.get(id(tensor))
        if new is None:
            name = names.get(id(tensor), f"outside_{k}")
            attributes[name] = tensor
            with graph.inserting_before(first):
                new = graph.create_node("get_attr", name)
        new.meta = dict(node.meta)
        read = new
        if isinstance(tensor, torch.Tensor) and not any(user.target is DETACH for user in node.users):
            with graph.inserting_before(first):
                read = graph.call_function(DETACH, (new,))
            read.meta = dict(node.meta)
        node.replace_all_uses_with(read)
        graph.erase_node(node)
    spec = pytree.tree_structure(args)
    pack(graph, [f"input_{k}" for k in range(len(args))], spec, results)
    run_in_place(graph)
    bound = GraphModule(attributes, graph)
    bound.graph.lint()
    return bound


def _state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
