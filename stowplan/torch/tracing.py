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
from .shrinking import shrink

PHASE = "stowplan_phase"
"""Key in a node's ``meta`` of its `Phase`, if tracing knows it."""

IN_PLACE = "stowplan_in_place"
"""Key in a node's ``meta`` of the operator in place that the node stands for."""

AT_ONCE = "stowplan_at_once"
"""Key in a node's ``meta``, if it writes in place on what an operator has just made, before others read that."""

VIEWS = ("aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes")
"""Operators whose results are views though their schemas do not say so."""

BY_VALUES = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
"""What PyTorch raises where tensors without bytes will not do."""

State = dict[str, torch.Tensor]

LIBRARY = torch.library.Library("stowplan", "DEF")
"""Operators of the traced graphs beside PyTorch's."""

LIBRARY.define("bernoulli(Tensor self, float p=0.5) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
LIBRARY.impl(
    "bernoulli", lambda self, p=0.5: torch.empty_like(self).bernoulli_(p), "CompositeExplicitAutograd"
)


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
    if functional:
        _require_traced(traced.graph)
        _write_apart(traced.graph)
        _leave_out_aliases(traced.graph)
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


def require_numbers(graph: Graph) -> None:
    """Raise unless all sizes are numbers.

    Raises
    ------
    GraphError
        A size is a symbol.
    """
    for node in graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            sizes = (*value.shape, *value.stride()) if _is_strided(value) else (value,)
            if any(isinstance(size, torch.SymInt | torch.SymFloat) for size in sizes):
                raise GraphError(
                    "the graph has sizes that are symbols; expected torch.compile(..., dynamic=False)"
                    if node.op == "placeholder"
                    else f"what {node.name} returns depends on values; expected shapes that do not"
                )


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


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _require_traced(graph: Graph) -> None:
    """Raise where oneDNN runs an LSTM, whose workspace is there only while autograd records it."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.mkldnn_rnn_layer.default):
        raise GraphError(
            f"{node.name} keeps what its backward pass needs from no trace; expected another LSTM, such as that in "
            "torch.backends.mkldnn.flags(enabled=False)"
        )


def _write_apart(graph: Graph) -> None:
    """Let operators in place give results of their own, where these have the layout of what was written.

    On the layout the last bits of exponentials and sums depend. What is written in parts, or read later through a view
    from before, stays as it is; if no operator reads the storage before the last such write, and none takes another
    tensor, they are part of making it::

        gates = add_(h, x)    parts = split(gates)    sigmoid_(parts[0])    tanh_(parts[1])    made again together
    """
    place = {node: k for k, node in enumerate(graph.nodes)}
    storages = {node: _storages(node) for node in graph.nodes}
    taken: dict[int, list[Node]] = {}
    written: dict[int, list[tuple[Node, Node]]] = {}
    for node in graph.nodes:
        for given in node.all_input_nodes:
            for storage in storages[given]:
                taken.setdefault(storage, []).append(node)
        for argument, given in _arguments(node):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for one in [given] if isinstance(given, Node) else given or ():
                    for storage in storages[one]:
                        written.setdefault(storage, []).append((node, one))
    for node in (*graph.find_nodes(op="placeholder"), *graph.find_nodes(op="get_attr")):
        for storage in storages[node]:
            written.pop(storage, None)

    def is_read_later(node: Node, storage: int) -> bool:
        later = (user for user in taken[storage] if place[user] > place[node])
        given = (one for user in later for one in user.all_input_nodes if storage in storages[one])
        return any(place[one] < place[node] for one in given)

    for storage, writes in written.items():
        began = -1
        while writes and not is_read_later(writes[0][0], storage) and (found := _apart(*writes[0])):
            node, _ = writes.pop(0)
            began, node.meta[IN_PLACE] = place[node], node.target
            node.target, node.meta["val"] = found
        alone = all(node.all_input_nodes == [given] and not is_random(node) for node, given in writes)
        ended = max((place[node] for node, _ in writes), default=-1)
        rest = [node for node, _ in writes]
        between = (user for user in taken[storage] if began < place[user] < ended)
        if alone and all(is_name(user) or user in rest for user in between):
            for node in rest:
                node.meta[AT_ONCE] = True


def _apart(node: Node, given: Node) -> tuple[Any, torch.Tensor] | None:
    """Return the operator that gives as a result what this one writes, and the result; None where layouts differ."""
    other = _functional(node.target)
    if node.target is torch.ops.aten.bernoulli_.float:  # in the memory order of what it writes
        other = torch.ops.stowplan.bernoulli.default
    elif is_random(node) or other is None or other is node.target:
        return None
    args, kwargs = pytree.tree_map_only(Node, lambda one: one.meta["val"], (node.args, node.kwargs))
    old = given.meta["val"]
    whole = isinstance(old, FakeTensor) and old.untyped_storage().nbytes() == old.numel() * old.element_size()
    if node.args[0] is not given or not whole:
        return None
    with old.fake_mode, torch.no_grad():
        new = other(*args, **kwargs)
    same = (new.shape, new.stride(), new.dtype) == (old.shape, old.stride(), old.dtype)
    return (other, new) if same else None


def _functional(target: Any) -> Any:
    """Return the operator that takes what one in place takes, and returns what that writes; None if there is none."""
    packet = getattr(torch.ops.aten, target._schema.name.removeprefix("aten::").removesuffix("_"), None)
    every = [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
    taken = [(one.name, str(one.type)) for one in target._schema.arguments]
    return next(
        (one for one in every if [(a.name, str(a.type)) for a in one._schema.arguments] == taken), None
    )


def _storages(node: Node) -> set[int]:
    """Return the storages of a node's results."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return {leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, torch.Tensor)}


def _arguments(node: Node) -> list[tuple[Any, Any]]:
    """Return an operator's arguments as its schema has them, each with what the node gives."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    every = node.target._schema.arguments
    return [
        (one, node.args[k] if k < len(node.args) else node.kwargs.get(one.name))
        for k, one in enumerate(every)
    ]


def is_in_place(node: Node) -> bool:
    """Whether a functional node may write on its first argument: the program did, and no other node takes that one."""
    if IN_PLACE not in node.meta or len(node.args[0].users) != 1:
        return False
    source = node.args[0]
    while source.target is getitem:
        source = source.args[0]
    return isinstance(source.target, torch._ops.OpOverload) and not is_view(source)


def is_name(node: Node) -> bool:
    """Whether a node makes no bytes: it names a result of another, a view of it, or what it writes there at once."""
    return node.op == "call_function" and (node.target is getitem or is_view(node) or AT_ONCE in node.meta)


def is_view(node: Node) -> bool:
    """Whether a node makes views of one tensor, and no bytes."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or len(node.all_input_nodes) != 1:
        return False
    return bool(target.is_view) or target._schema.name in VIEWS


def is_random(node: Node) -> bool:
    """Whether a node draws random numbers."""
    tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else ()
    return torch.Tag.nondeterministic_seeded in tags


def _leave_out_aliases(graph: Graph) -> None:
    """Let users of ``detach`` and ``alias`` take the tensor itself, and drop what has no use and no effect."""
    for target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        for node in graph.find_nodes(op="call_function", target=target):
            node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()


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
