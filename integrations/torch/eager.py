"""A captured graph's operators, so that they give the bits of the program outside of a graph.

AOTAutograd differs from eager PyTorch in six things, which change last bits, or miss an error:

- It decomposes some composite operators (dropout, upsampling, recurrent layers) in Python. While it traces here, it
  does not.
- Random numbers of ``bernoulli_`` come in the memory order of what is written, those of its functional form do not.
- Autocast casts a parameter once for all its readers, whose gradients then meet in few bits. In a graph each reader has
  a cast of its own.
- ``one_hot`` looks at its classes, which have no values while AOTAutograd traces.
- What is written in place into a tensor that has gaps (a part of another) keeps the layout, and exponentials and sums
  depend on it. The functional operator's result has none.
- It takes some operators to keep the layout of what they take, which they do not (`MISTRACED`).
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.traceback import annotate

from ..common.errors import GraphError
from ..scheduling.graph import Phase
from . import seams
from .nodes import BERNOULLI, LIBRARY, PHASE, define, is_name, is_view

aten = torch.ops.aten


def _bernoulli(given: torch.Tensor, p: float = 0.5, generator: Any = None) -> Any:
    return NotImplemented if generator is not None else BERNOULLI(given, p)


MISTRACED = (
    aten.mse_loss_backward, aten.smooth_l1_loss_backward, aten.huber_loss_backward, aten.binary_cross_entropy_backward,
    aten._log_softmax_backward_data, aten.native_layer_norm_backward, aten.native_dropout_backward, aten.elu_backward,
    aten.hardswish_backward, aten.softplus_backward, aten.hardsigmoid_backward, aten.hardtanh_backward,
    aten.log_sigmoid_forward, aten._native_batch_norm_legit_functional, aten._native_batch_norm_legit_no_training,
    aten.native_batch_norm_backward,
)  # fmt: skip
"""Operators whose strides PyTorch traces wrongly where a tensor is not contiguous."""


def _as_strided(target: Any) -> Any:
    """Return a decomposition to an operator that calls this one; its strides are traced as those of a real call."""
    known: dict[str, Any] = {}

    def meta(*args: Any) -> Any:
        return seams.pytree.tree_map_only(torch.Tensor, torch.empty_like, known[_layouts(args)])

    schema = str(seams.schema_of(target)).removeprefix("aten::")
    operator = define(schema, target)
    LIBRARY.impl(schema.partition("(")[0], meta, "Meta")

    def decomposed(*args: Any) -> Any:
        tensors = [one for one in seams.pytree.tree_leaves(args) if isinstance(one, torch.Tensor)]
        if all(one.is_contiguous() for one in tensors):
            return NotImplemented
        with seams.outside_modes():
            found = target(*seams.pytree.tree_map_only(torch.Tensor, constant_like, args))
            known[_layouts(args)] = seams.pytree.tree_map_only(
                torch.Tensor, lambda one: one.to("meta"), found
            )
        return operator(*args)

    return decomposed


def _layouts(tree: Any) -> str:
    return str(
        seams.pytree.tree_map_only(torch.Tensor, lambda one: (one.shape, one.stride(), one.dtype), tree)
    )


def constant_like(said: torch.Tensor, number: int = 0) -> torch.Tensor:
    """Return a real tensor in a tensor's layout, all of one number."""
    return torch.empty_strided(said.shape, said.stride(), dtype=said.dtype, device=said.device).fill_(number)


DECOMPOSITIONS = {
    aten.bernoulli.p: _bernoulli,
    **{one.default: _as_strided(one.default) for one in MISTRACED},
}
"""For AOTAutograd: functional operators whose random numbers are in another order than those of the form in place, and
`MISTRACED`."""

WITH_GAPS = define(
    "with_gaps(Tensor self, SymInt[] strides) -> Tensor",
    lambda self, strides: self.new_empty_strided(self.shape, strides).copy_(self),
)


def _classes(given: torch.Tensor, most: int) -> torch.Tensor:
    if given.numel() and int(given.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    if given.numel() and int(given.max()) >= most:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return given.clone()


CLASSES = define("classes(Tensor self, int most) -> Tensor", _classes)
LIBRARY.impl("classes", lambda given, most: torch.empty_like(given), "Meta")

LAYOUT = "stowplan_strides"
"""Annotation of a node whose result has been written into a tensor with gaps: that one's strides."""

EXACT = {
    aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.neg, aten.abs, aten.sign, aten.relu, aten.clamp, aten.where,
    aten.threshold_backward, aten.sigmoid_backward, aten.tanh_backward, aten.masked_fill, aten.copy, aten.copy_,
    aten.clone, aten._to_copy, aten.cat, aten.stack, aten.zeros_like, aten.ones_like, aten.empty_like, aten.new_zeros,
    aten.slice_scatter, aten.select_scatter, aten.slice_backward, aten.select_backward,
}  # fmt: skip
"""Operators whose bits do not depend on the layout of what they take."""


def as_eager(module: GraphModule) -> GraphModule:
    """Return a graph module that AOTAutograd traces to the operators that run outside of a graph."""
    graph = Graph()
    given = [(node, graph.node_copy(node)) for node in module.graph.find_nodes(op="placeholder")]
    results = graph.call_module("captured", tuple(copied for _, copied in given))
    output = module.graph.find_nodes(op="output")[0]
    graph.output(tuple(graph.call_function(getitem, (results, k)) for k in range(len(output.args[0]))))
    found = GraphModule({"captured": _AsEager(module)}, graph)
    found.meta = module.meta
    seams.copy_sources(module, found, given, "captured.module.")
    return found


class _AsEager(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, module: GraphModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any) -> Any:
        with seams.no_python_dispatcher(), _Layouts():
            return _Checking(self.module).run(*args)


class _Checking(Interpreter):  # type: ignore[misc]
    """Runs `one_hot` as outside of a graph, where it looks at the classes."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in seams.ONE_HOT:
            given, most = (*args, *kwargs.values())[:2]
            return super().call_function(target, (CLASSES(given, most), most), {})
        return super().call_function(target, args, kwargs)


class _Layouts(seams.TorchDispatchMode):  # type: ignore[misc]
    """Annotates the nodes of what is written in place into tensors with gaps."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not isinstance(func, seams.OpOverload):
            return func(*args, **(kwargs or {}))
        kwargs, schema = kwargs or {}, seams.schema_of(func)
        draws = torch.Tag.nondeterministic_seeded in func.tags and schema.name != "aten::bernoulli_"
        draws = draws and (schema.name.endswith("_") or schema.name == "aten::normal")
        if draws and any(isinstance(one, torch.Tensor) and not one.is_contiguous() for one in args):
            raise GraphError(
                f"{schema.name} draws random numbers by a tensor that is not contiguous, in another order than a graph "
                "would; expected a contiguous one"
            )
        given = args[0] if args and schema.is_mutable and schema.name.endswith("_") else None
        if not isinstance(given, torch.Tensor) or given.layout != torch.strided or not _has_gaps(given):
            return func(*args, **kwargs)
        with annotate({LAYOUT: (tuple(given.shape), tuple(given.stride()))}):
            return func(*args, **kwargs)


def _has_gaps(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements do not lie side by side, in some order."""
    count = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != count:
            return bool(tensor.numel() > 0)
        count *= size
    return False


def lay_out_parts(graph: Graph) -> None:
    """Let operators whose bits depend on layouts take what was written into tensors with gaps in these layouts."""
    for node in list(graph.nodes):
        shape, strides = node.meta.get("custom", {}).get(LAYOUT, (None, None))
        value = node.meta.get("val")
        if strides is None or not isinstance(value, torch.Tensor) or is_name(node):
            continue
        if value.stride() == strides or value.shape != shape:  # it is the whole, which the part is written to
            continue
        readers = [user for user in node.users if user.op != "output" and not _is_exact(user)]
        if not readers:
            continue
        with graph.inserting_after(node), value.fake_mode, torch.no_grad():
            laid = graph.call_function(WITH_GAPS, (node, list(strides)))
            laid.meta = {key: one for key, one in node.meta.items() if key != "custom"}
            laid.meta["val"] = torch.empty_strided(
                value.shape, strides, dtype=value.dtype, device=value.device
            )
        for user in readers:
            user.replace_input_with(node, laid)


def _is_exact(node: Node) -> bool:
    if is_view(node):
        return all(_is_exact(user) for user in node.users)
    return node.op == "call_function" and getattr(node.target, "overloadpacket", None) in EXACT


ONCE, EACH, MIXED = "once", "for each reader", "in several regions, or some of them once"


def casts_of(module: GraphModule) -> str:
    """Return how autocast casts parameters in a Dynamo graph: `ONCE`, for each reader (`EACH`), or `MIXED`."""
    depth, regions = 0, 0
    cached: set[bool] = set()
    for node in module.graph.nodes:
        if node.target is seams.ENTER_AUTOCAST:
            regions += depth == 0
            depth += 1
            cached.add(len(node.args) < 4 or node.args[3] is not False)
        elif node.target is seams.EXIT_AUTOCAST:
            depth -= 1
    return EACH if cached == {False} else ONCE if regions < 2 and False not in cached else MIXED


def cast_once(graph: Graph, casts: str) -> None:
    """Let readers of a parameter's cast share one, and their gradients meet in its type, if autocast does so."""
    output = graph.find_nodes(op="output")[0]
    for given in graph.find_nodes(op="placeholder") if casts != EACH else ():
        kinds: dict[Any, list[Node]] = {}
        for user in given.users:
            if user.target is aten._to_copy.default and user.meta.get(PHASE) == Phase.FORWARD:
                kinds.setdefault(user.kwargs.get("dtype"), []).append(user)
        several = [
            row for kind, row in kinds.items() if kind in (torch.bfloat16, torch.float16) and len(row) > 1
        ]
        if not several:
            continue
        gradient = next(
            (
                one
                for one, told in zip(output.args[0], output.meta.get("desc") or (), strict=False)
                if getattr(told, "grad_of", None) == given.meta.get("desc")
            ),
            None,
        )
        if gradient is None:  # nothing meets
            continue
        terms = _terms(gradient)
        low = [one for one in terms if one.target is aten._to_copy.default and _kind(one.args[0]) in kinds]
        if casts == MIXED or len(several) > 1 or len(terms) - len(low) > 1 or len(low) != len(several[0]):
            raise GraphError(
                f"{given.name} is cast by autocast more than once, and its gradients do not meet in one sum; expected "
                "a cast in the program"
            )
        with graph.inserting_before(gradient):
            total: Node = low[0].args[0]
            for one in low[1:]:
                total = _added(graph, total, one.args[0])
            total = graph.call_function(aten._to_copy.default, (total,), dict(low[0].kwargs))
            total.meta = dict(low[0].meta)
            for one in terms:
                if one not in low:
                    total = _added(graph, total, one)
        gradient.replace_all_uses_with(total)
        for one in several[0][1:]:
            one.replace_all_uses_with(several[0][0])
    graph.eliminate_dead_code()


def _added(graph: Graph, one: Node, other: Node) -> Node:
    found = graph.call_function(aten.add.Tensor, (one, other))
    value = one.meta["val"]
    with value.fake_mode, torch.no_grad():  # on a storage of its own
        found.meta = {**one.meta, "custom": {}, "val": torch.empty_like(value)}
    return found


def _terms(node: Node) -> list[Node]:
    """Return what a sum is of, in the order in which it was added up."""
    if node.target is not aten.add.Tensor or node.meta.get(PHASE) != Phase.BACKWARD or len(node.args) != 2:
        return [node]
    found: list[Node] = []
    for one in node.args:
        alone = isinstance(one, Node) and len(one.users) == 1
        found += _terms(one) if alone and one is node.args[0] else [one]
    return found


def _kind(node: Any) -> Any:
    value = seams.pytree.tree_leaves(node.meta.get("val"))[0]
    return value.dtype if isinstance(value, torch.Tensor) else None
