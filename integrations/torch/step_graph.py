"""Make the step graph of a graph module of ATen operators.

Every node that calls an operator becomes an operator, in the graph module's order; its label is the node's name.
``operators(module)[i]`` is the node of operator i. Views are none: they name a tensor, and make no bytes. Every other
tensor becomes a value, and tensors on one storage share it, as one run on tensors without bytes shows::

    node                                      operator        reads     writes
    weight = self.weight                                                           a resident value
    x                                                                              a resident value
    pair = max_pool2d_with_indices(x, 2)      0               x         y, indices
    y = pair[0]                                                                    no operator: it names the tensor
    t = t(weight)                                                                  no operator: it names weight
    h = mm(y, t)                              1               y, weight h
    relu_ = relu_(h)                          2               h         h          in place
    add_ = add_(weight, g)                    3               weight, g weight     after 1, which reads the storage

An operator that writes in place comes after all that used the storage before it, through whatever view, and all that
use it later come after it (``after``). Operators that draw random numbers keep their order. O(n + k) for n nodes and k
arguments, and as many hazards as there are uses between writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from ..common.errors import GraphError
from ..scheduling.graph import Phase, StepGraph
from . import nodes, seams
from .costs import seconds
from .graph_errors import not_captured
from .shrinking import bytes_held

REPEATABLE, WORKSPACE, KEEPS = "stowplan_repeatable", "stowplan_workspace", "stowplan_keeps"
"""Keys in a node's ``meta``: whether it may run again although its schema speaks against it; bytes of its workspace;
whether what it takes stays alive after the step."""

# They write running mean and variance in training, and their schemas do not say so: arguments 3 and 4; 5 is `training`.
_BATCH_NORMS = ("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm")


def graph(module: torch.nn.Module, inputs: Sequence[Any] | None = None) -> StepGraph:
    """Return the step graph of a module.

    Parameters
    ----------
    module
        A graph module of ATen operators, as `trace`, `trace_training`, ``make_fx`` and ``torch.export`` give it; any
        other module is traced first, by `trace`.
    inputs
        Its positional arguments. None: a graph module's placeholders have their shapes
        (``node.meta["val"]``), as those of the four named do.

    Returns
    -------
    StepGraph
        Parameters, buffers, constants and inputs are resident; results are kept. Operators' own workspaces are not
        counted, except those that a node's ``meta`` names (``WORKSPACE``). Seconds are estimated (``costs``).

    Raises
    ------
    GraphError
        Naming the node that calls something other than an operator, or has a tensor without a storage; or the inputs
        are missing.
    """
    recorded = as_graph_module(module, inputs)
    if inputs is not None:
        _fill(recorded, inputs)
    modules = dict(recorded.named_modules())
    shaped = (node for node in recorded.graph.nodes if node.op != "output" and node.target not in modules)
    missing = next((node for node in shaped if "val" not in node.meta), None)
    if missing is not None:
        raise GraphError(
            f"{missing.name}: neither inputs were given nor does the graph say its shape (meta['val'])"
        )
    return _Reader(recorded).graph()


def operators(module: GraphModule) -> list[Node]:
    """Return the nodes that are operators, in the order in which `graph` numbers them."""
    return [node for node in module.graph.nodes if _is_operator(node)]


def given_to(module: GraphModule) -> list[Node]:
    """Return the nodes of what exists before the first operator, and those that name it."""
    given = [node for node in module.graph.nodes if node.op in ("placeholder", "get_attr")]
    return given + [name for node in given for name in nodes.named_by(node)]


def as_graph_module(module: torch.nn.Module, inputs: Sequence[Any] | None) -> GraphModule:
    """Return the module itself if it is a graph module of ATen operators, else trace it."""
    if isinstance(module, GraphModule):
        other = next((node for node in module.graph.nodes if not _is_aten(node)), None)
        if other is None:
            return module
        if inputs is None:
            raise _not_aten(other)
    if inputs is None:
        raise GraphError(f"{type(module).__name__} has to be traced; expected the inputs to trace it with")
    from .tracing import trace

    return trace(module, inputs)


def is_training_batch_norm(node: Node) -> bool:
    """Whether a node normalizes by the batch, and so changes the running statistics."""
    named = isinstance(node.target, seams.OpOverload) and seams.schema_of(node.target).name in _BATCH_NORMS
    return named and bool(nodes.argument(node, 5, "training"))


def _is_operator(node: Node) -> bool:
    return node.op not in ("placeholder", "get_attr", "output") and not nodes.is_name(node)


def _is_aten(node: Node) -> bool:
    return not _is_operator(node) or isinstance(node.target, seams.OpOverload)


def _not_aten(node: Node) -> GraphError:
    return GraphError(f"{node.name} calls {node.target}; expected an ATen operator")


class _Reader:
    """Numbers tensors as values while it goes through the nodes, whose ``meta["val"]`` tell which share a storage."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.results = {node: node.meta.get("val") for node in module.graph.nodes}
        self.tree: dict[Node, Any] = {}  # a node's results, the value of each tensor in its place
        self.owner: dict[int, int] = {}  # the value that has a storage, by the storage's address
        self.columns: dict[str, list[Any]] = {key: [] for key in ("size", "storage", "resident", "name")}
        self.hazards = _Hazards()

    def graph(self) -> StepGraph:
        rows: dict[str, list[Any]] = {
            key: []
            for key in ("reads", "writes", "after", "phase", "repeatable", "workspace", "label", "seconds")
        }
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.name(node, partial(self.new, node=node, resident=True))
            elif node.target is getitem:
                self.tree[node] = self.tree[node.args[0]][node.args[1]]
            elif nodes.is_name(node):
                (value,) = self.read(node)
                self.tree[node] = seams.pytree.tree_map(lambda _, value=value: value, self.results[node])
            elif _is_operator(node):
                for key, entry in self.operator(node, len(rows["reads"])).items():
                    rows[key].append(entry)
        kept = [False] * len(self.columns["size"])
        for node in self.module.graph.nodes:
            if node.op == "output" or KEEPS in node.meta:
                for value in self.read(node):
                    kept[value] = True
        return StepGraph(**rows, **self.columns, kept=kept)

    def operator(self, node: Node, number: int) -> dict[str, Any]:
        if not _is_aten(node):
            raise _not_aten(node)
        reads, changed = self.read(node), self.changed(node)
        storage, result = self.columns["storage"], self.results[node]
        if nodes.is_in_place(node):  # a value of its own, on the storage of what it takes
            self.owner[seams.key_of(result.untyped_storage())] = storage[self.values_of(node.args[0])[0]]
        written = {storage[v]: v for v in changed}

        def number_of(tensor: torch.Tensor) -> int:
            own = self.owner.get(seams.key_of(tensor.untyped_storage())) if written else None
            return self.new(tensor, node) if own not in written else written[own]

        self.name(node, number_of)
        writes = list(dict.fromkeys([*changed, *self.values_of(node)]))
        draws = nodes.is_random(node) or nodes.is_foreign(node)
        after = self.hazards.of(
            number, {storage[v] for v in reads}, {storage[v] for v in changed}, draws=draws
        )
        phase = node.meta.get(nodes.PHASE, Phase.FORWARD)
        if node.meta.get("partitioner_tag") == "is_backward":  # of a joint graph by AOTAutograd
            phase = Phase.BACKWARD
        if phase == Phase.BACKWARD and any(self.columns["resident"][storage[v]] for v in changed):
            phase = Phase.UPDATE
        return {
            "reads": reads,
            "writes": writes,
            "after": sorted(after),
            "phase": phase,
            "repeatable": phase == Phase.FORWARD and node.meta.get(REPEATABLE, not changed and not draws),
            "workspace": node.meta.get(WORKSPACE, 0),
            "label": node.name,
            "seconds": seconds(node, self.results),
        }

    def name(self, node: Node, number: Callable[[torch.Tensor], int]) -> None:
        """Give the tensors of a node's results numbers; all else is one value without bytes."""
        other: list[int] = []

        def of(leaf: Any) -> int | None:
            if isinstance(leaf, torch.Tensor):
                return number(leaf)
            if leaf is None or node.op != "call_function":
                return None
            if not other:
                other.append(self.add(0, len(self.columns["size"]), node.name))
            return other[0]

        self.tree[node] = seams.pytree.tree_map(of, self.results[node])

    def read(self, node: Node) -> list[int]:
        """Return the values that a node takes, but running statistics that its results do not depend on.

        What `BATCH_NORM` returns of these is written to the buffers later, and it can run again after that.
        """
        left = node.args[3:5] if node.op == "call_function" and node.target is nodes.BATCH_NORM else ()
        sources = [
            one
            for one in node.all_input_nodes
            if one not in left or nodes.storage_of(one).op == "call_function"
        ]
        return list(dict.fromkeys(v for source in sources for v in self.values_of(source)))

    def values_of(self, node: Node) -> list[int]:
        return [value for value in seams.pytree.tree_leaves(self.tree[node]) if value is not None]

    def changed(self, node: Node) -> list[int]:
        """Return the values that an operator writes in place, but those that nothing else reads."""
        if nodes.is_in_place(node):
            return []
        schema = seams.schema_of(node.target)
        written = []
        for position, one in enumerate(schema.arguments):
            if one.alias_info is not None and one.alias_info.is_write:
                written.append(nodes.argument(node, position, one.name))
        if is_training_batch_norm(node):
            written += [nodes.argument(node, 3, "running_mean"), nodes.argument(node, 4, "running_var")]
        sources = [leaf for leaf in seams.pytree.tree_leaves(written) if isinstance(leaf, Node)]
        return list(dict.fromkeys(v for source in sources for v in self.values_of(source)))

    def new(self, tensor: torch.Tensor, node: Node, *, resident: bool = False) -> int:
        """Return the number of a new value."""
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:
            raise GraphError(f"{node.name} has a tensor without a storage; expected strided ones") from None
        value = len(self.columns["size"])
        owner = self.owner.setdefault(seams.key_of(storage), value)
        size = max(storage.nbytes(), bytes_held(node)) if owner == value else 0
        return self.add(size, owner, node.name, resident=resident)

    def add(self, size: int, storage: int, name: str, *, resident: bool = False) -> int:
        self.columns["size"].append(size)
        self.columns["storage"].append(storage)
        self.columns["resident"].append(resident)
        self.columns["name"].append(name)
        return len(self.columns["size"]) - 1


class _Hazards:
    """The operators that an operator comes after, besides those that write the values that it reads."""

    def __init__(self) -> None:
        self.written: dict[int, int] = {}  # by a storage: the operator that last changed it in place
        self.used: dict[int, list[int]] = {}  # by a storage: the operators that have used it since
        self.drew: int | None = None  # the operator that last drew random numbers

    def of(self, number: int, used: set[int], changed: set[int], *, draws: bool) -> set[int]:
        after = {self.written[storage] for storage in used | changed if storage in self.written}
        for storage in changed:
            after.update(self.used.pop(storage, ()))
            self.written[storage] = number
        for storage in used - changed:
            self.used.setdefault(storage, []).append(number)
        if draws:
            if self.drew is not None:
                after.add(self.drew)
            self.drew = number
        return after


def _fill(module: GraphModule, inputs: Sequence[Any]) -> None:
    """Set ``meta["val"]`` of all nodes, by a run on tensors that have a shape and a storage but no bytes."""
    flat = list(module.graph.process_inputs(*inputs))
    fakes = [one for one in seams.pytree.tree_leaves(flat) if isinstance(one, seams.FakeTensor)]
    mode = fakes[0].fake_mode if fakes else seams.FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with torch.no_grad():
            FakeTensorProp(module, mode).propagate(*flat)
    except seams.BY_VALUES as error:
        raise not_captured(error) from None
