"""NNTrainer's planner: a training step from a list of layers, without running anything.

Every layer has up to four *execution orders*, numbers in the step at which something of it runs: forward, gradient of
its weights, derivative of its inputs, and apply, which updates its weights::

    layer     forward   gradient   derivative   apply
    input        0         11          11         11       no weights: the three are one
    conv         1          8           9         10
    relu         2          7           7          7
    linear       3          4           5          6       the backward pass starts with the last layer

A tensor's *lifespan* tells at which of them it exists: a weight at all, the gradient of a weight from gradient to
apply, an input at forward and gradient. Its lifetime follows: from the least of these numbers to the greatest. So the
whole step is known from names and sizes, and can be ordered, scheduled and packed (`stowplan.papers.olla.joint`).

With gradients that are *clipped* by their norm, all of them exist before the first apply, so all applies come last.
A layer that *shares* the weights of one before it (the paper's Extend) adds to their gradient, which is applied once,
after the layer that has them; so do the copies of layers that are *unrolled* in time.

Outputs are *merged* where a layer allows it. A view (flatten, reshape) has its input's storage; a layer in place takes
it over when no later layer needs the input. Both hold for derivatives, too, of an input that has one reader.

NNTrainer: Moon et al. 2022 (arXiv 2206.04688); the numbers as in ``NetworkGraph::setExecutionOrder``, the lifespans as
in ``Manager::requestInputs`` of its released code (Apache-2.0). What differs: a sum of derivatives is written by each
reader of the output, where NNTrainer puts a layer in between. O(n + k) for n layers and k tensors, merged ones apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntFlag
from typing import Any, NamedTuple

from ...common.errors import GraphError
from ...scheduling.graph import Phase, StepGraph


class Lifespan(IntFlag):
    """At which of a layer's execution orders a tensor exists."""

    FORWARD = 1
    GRADIENT = 2
    DERIVATIVE = 4
    APPLY = 8
    BACKWARD = GRADIENT | DERIVATIVE | APPLY
    ITERATION = FORWARD | BACKWARD


class Merge(Enum):
    """What a layer's output has to do with its first input's storage."""

    NONE = "none"
    IN_PLACE = "in place"
    VIEW = "view"


@dataclass(frozen=True)
class Layer:
    """One layer. All sizes are bytes, batch included.

    Attributes
    ----------
    name
        Unique.
    output
        Bytes of the output, and of its derivative.
    inputs
        Names of layers before it; None: the one right before it, if there is one. Empty: it is given its output.
    weights
        Bytes of each weight.
    temporaries
        Bytes and lifespan of each tensor that only this layer uses.
    needs_input
        When it reads its inputs.
    needs_output
        When it has to have its output.
    merge
        Whether the output may have the first input's storage.
    frozen
        Its weights are not trained.
    label
        Bytes of the label, of a layer that no layer reads; of a loss usually those of its input. None: those of its
        output.
    shares
        Name of a layer before it whose weights it uses; it has none of its own then.
    operations
        Of its forward pass; the gradient of its weights and the derivative of its input take as many each.
    """

    name: str
    output: int
    inputs: tuple[str, ...] | None = None
    weights: tuple[int, ...] = ()
    temporaries: tuple[tuple[int, Lifespan], ...] = ()
    needs_input: Lifespan = Lifespan.FORWARD | Lifespan.GRADIENT
    needs_output: Lifespan = Lifespan.FORWARD
    merge: Merge = Merge.NONE
    frozen: bool = False
    label: int | None = None
    shares: str | None = None
    operations: int = 0

    @property
    def trains(self) -> bool:
        """Whether it uses weights that are trained."""
        return bool(self.weights or self.shares) and not self.frozen


class ExecutionOrders(NamedTuple):
    """When in the step the parts of a layer run, from 0; the last three are equal where it trains nothing."""

    forward: int
    gradient: int
    derivative: int
    apply: int


def execution_orders(layers: Sequence[Layer], *, clipping: bool = False) -> list[ExecutionOrders]:
    """Return the numbers of each layer, (n,): forward from the first layer to the last, then backward.

    ``clipping``: gradients are clipped by the norm of all. Layers that share weights have the apply of the one that has
    them.
    """
    clock = len(layers)
    backward: dict[int, tuple[int, int]] = {}
    applied: dict[str, int] = {}
    for number in range(len(layers) - 1, -1, -1):
        layer = layers[number]
        backward[number] = clock, clock + layer.trains
        clock = backward[number][1] + 1
        if layer.trains and not layer.shares and not clipping:
            applied[layer.name] = clock
            clock += 1
    if clipping:
        for layer in reversed(layers):
            if layer.trains and not layer.shares:
                applied[layer.name] = clock
                clock += 1
    return [
        ExecutionOrders(
            number, *backward[number], applied.get(layer.shares or layer.name, backward[number][1])
        )
        for number, layer in enumerate(layers)
    ]


def step_graph(layers: Sequence[Layer], *, clipping: bool = False, rate: float = math.inf) -> StepGraph:
    """Return the training step of layers: an operator for each execution order.

    Weights and labels are resident: they exist before the step and after it. What `stowplan.scheduling.simulate`
    counts is the rest; ``graph.resident_bytes`` are theirs.

    Parameters
    ----------
    layers
        n, each after those that it reads.
    clipping
        Whether gradients are clipped by the norm of all, so that all exist before any is applied.
    rate
        Operations a second, from which operators have their seconds.

    Raises
    ------
    GraphError
        Naming the layer and what was expected: a name that is used twice, an input that is no layer before it, a
        negative size, a view of another size, a label of a layer that others read, weights shared with a layer that has
        none.
    """
    return _Step(layers, clipping, rate).graph()


class _Tensor(NamedTuple):
    """A value to be: the tensor that has its storage, and the operators that read and write it."""

    name: str
    size: int
    resident: bool
    reads: list[int]
    writes: list[int]


class _Step:
    """Tensors are made with all their uses first; then outputs are merged, as that depends on them."""

    def __init__(self, layers: Sequence[Layer], clipping: bool, rate: float) -> None:
        self.layers, self.rate = layers, rate
        self.index: dict[str, int] = {}
        self.inputs: list[list[int]] = []
        for i, layer in enumerate(layers):
            self.check(layer)
            names = layer.inputs
            if names is None:
                names = (layers[i - 1].name,) if i else ()
            for name in names:
                if name not in self.index:
                    raise GraphError(
                        f"layer {layer.name} reads {name!r}; expected the name of a layer before it"
                    )
            self.inputs.append([self.index[name] for name in names])
            self.index[layer.name] = i
        self.consumers: list[list[int]] = [[] for _ in layers]
        for i, inputs in enumerate(self.inputs):
            for j in inputs:
                self.consumers[j].append(i)
        self.orders = execution_orders(layers, clipping=clipping)
        self.clipped = [
            at.gradient for at, layer in zip(self.orders, layers, strict=True) if clipping and layer.trains
        ]
        self.trained = [False] * len(layers)  # a derivative has to reach it
        for i, layer in enumerate(layers):
            self.trained[i] = layer.trains or any(self.trained[j] for j in self.inputs[i])
        self.tensors: list[_Tensor] = []
        self.base: dict[int, int] = {}  # by tensor, the one whose storage it has

    def check(self, layer: Layer) -> None:
        if layer.name in self.index:
            raise GraphError(f"two layers are named {layer.name!r}; expected different names")
        sizes = (layer.output, *layer.weights, *(size for size, _ in layer.temporaries), layer.label or 0)
        if min(sizes) < 0:
            raise GraphError(f"layer {layer.name}: {min(sizes)} bytes; expected 0 or more")
        if layer.shares is None:
            return
        owner = self.index.get(layer.shares)
        if owner is None or not self.layers[owner].weights or layer.weights:
            raise GraphError(
                f"layer {layer.name} shares the weights of {layer.shares!r}; expected a layer before it that has some, "
                "and none of its own"
            )
        if layer.frozen != self.layers[owner].frozen:
            raise GraphError(f"layer {layer.name} shares weights; expected `frozen` as of {layer.shares}")

    def graph(self) -> StepGraph:
        n = len(self.layers)
        outputs = [self.tensor(layer.name, layer.output) for layer in self.layers]
        derivatives = [self.derivative(i) if self.trained[i] else -1 for i in range(n)]
        for i in range(n):
            self.forward(i, outputs)
            self.backward(i, outputs, derivatives)
            self.own(i, [j for j in range(i, n) if j == i or self.layers[j].shares == self.layers[i].name])
        for i in range(n):
            self.merge_outputs(i, outputs)
        for i in range(n - 1, -1, -1):
            self.merge_derivatives(i, derivatives)
        return self.assembled()

    def tensor(self, name: str, size: int, resident: bool = False) -> int:
        self.tensors.append(_Tensor(name, size, resident, [], []))
        return len(self.tensors) - 1

    def derivative(self, i: int) -> int:
        """Return the derivative of a layer's output; if no layer reads the output, the label."""
        layer = self.layers[i]
        if self.consumers[i]:
            if layer.label is not None:
                raise GraphError(f"layer {layer.name} has a label and is read; expected one or the other")
            return self.tensor(f"derivative of {layer.name}", layer.output)
        size = layer.output if layer.label is None else layer.label
        return self.tensor(f"label of {layer.name}", size, resident=True)

    def forward(self, i: int, outputs: list[int]) -> None:
        at = self.orders[i].forward
        self.tensors[outputs[i]].writes.append(at)
        for j in self.inputs[i]:
            self.tensors[outputs[j]].reads.append(at)

    def backward(self, i: int, outputs: list[int], derivatives: list[int]) -> None:
        if not self.trained[i]:
            return
        layer, orders = self.layers[i], self.orders[i]
        passed = [j for j in self.inputs[i] if self.trained[j]]
        runs = []
        if layer.trains:
            runs.append((Lifespan.GRADIENT, orders.gradient))
        if passed:
            runs.append((Lifespan.DERIVATIVE, orders.derivative))
        for part, at in runs:
            self.tensors[derivatives[i]].reads.append(at)
            if layer.needs_output & part:
                self.tensors[outputs[i]].reads.append(at)
            if layer.needs_input & part:
                for j in self.inputs[i]:
                    self.tensors[outputs[j]].reads.append(at)
        for j in dict.fromkeys(passed):
            self.tensors[derivatives[j]].writes.append(orders.derivative)

    def own(self, i: int, sharing: list[int]) -> None:
        """Weights, their gradients, and temporaries; `sharing`: the layers that use the weights, itself included."""
        layer, orders = self.layers[i], self.orders[i]
        used: set[int] = set()
        for j in sharing:
            forward, _, derivative, apply = self.orders[j]
            used |= {forward, derivative, apply} if self.trained[j] else {forward}
        for k, size in enumerate(layer.weights):
            weight = self.tensor(f"weight {k} of {layer.name}", size, resident=True)
            self.tensors[weight].reads.extend(sorted(used))
            if layer.trains:
                gradient = self.tensors[self.tensor(f"gradient of weight {k} of {layer.name}", size)]
                gradient.writes.extend(sorted(self.orders[j].gradient for j in sharing))
                gradient.reads.append(orders.apply)
        for k, (size, lifespan) in enumerate(layer.temporaries):
            parts = zip((1, 2, 4, 8), orders, strict=True)
            at = sorted(
                {order for part, order in parts if lifespan & part and (self.trained[i] or part == 1)}
            )
            if at:
                temporary = self.tensors[self.tensor(f"temporary {k} of {layer.name}", size)]
                temporary.writes.append(at[0])
                temporary.reads.extend(at[1:])

    def merge_outputs(self, i: int, outputs: list[int]) -> None:
        """Give an output its input's storage, where the layer allows it. From the first layer on."""
        source = self.merged_with(i)
        if source is None:
            return
        view = self.layers[i].merge == Merge.VIEW
        if view or self.free_after(outputs[source], self.orders[i].forward):
            self.base[outputs[i]] = self.root(outputs[source])

    def merge_derivatives(self, i: int, derivatives: list[int]) -> None:
        """Give the input's derivative the output's, where the input has no other reader. From the last layer on."""
        source = self.merged_with(i)
        if (
            source is None
            or self.consumers[source] != [i]
            or not self.consumers[i]
            or not self.trained[source]
        ):
            return
        if self.free_after(derivatives[i], self.orders[i].derivative):
            self.base[derivatives[source]] = self.root(derivatives[i])

    def merged_with(self, i: int) -> int | None:
        """Return the layer whose output this one may share, or None."""
        layer = self.layers[i]
        if layer.merge == Merge.NONE or not self.inputs[i]:
            return None
        source = self.layers[self.inputs[i][0]]
        if source.output == layer.output:
            return self.inputs[i][0]
        if layer.merge == Merge.VIEW:
            raise GraphError(
                f"layer {layer.name} is a view of {layer.output} bytes of {source.name}; expected {source.output}"
            )
        return None

    def root(self, tensor: int) -> int:
        return self.base.get(tensor, tensor)

    def free_after(self, tensor: int, order: int) -> bool:
        """Whether no operator needs a tensor's storage after an execution order."""
        root = self.root(tensor)
        sharing = [root, *(t for t, base in self.base.items() if base == root)]
        return all(max(self.tensors[t].reads, default=-1) <= order for t in sharing)

    def assembled(self) -> StepGraph:
        n = len(self.layers)
        count = max((orders.apply for orders in self.orders), default=-1) + 1
        labels = [""] * count
        phase = [Phase.FORWARD] * count
        seconds = [0.0] * count
        for layer, orders, inputs in zip(self.layers, self.orders, self.inputs, strict=True):
            labels[orders.forward] = f"forward {layer.name}"
            names = {"gradient": layer.trains, "derivative": True, "apply": layer.trains and not layer.shares}
            for name in (name for name, has_it in names.items() if has_it):
                at: int = getattr(orders, name)
                labels[at] = f"{name} {layer.name}"
                phase[at] = Phase.UPDATE if name == "apply" else Phase.BACKWARD
            runs = (True, layer.trains, any(self.trained[j] for j in inputs))
            for at, does in zip(orders, runs, strict=False):
                seconds[at] += does * layer.operations / self.rate
        rows: dict[str, Any] = {key: [[] for _ in range(count)] for key in ("reads", "writes")}
        for value, tensor in enumerate(self.tensors):
            for at in tensor.reads:
                rows["reads"][at].append(value)
            for at in tensor.writes:
                rows["writes"][at].append(value)
        columns: dict[str, Any] = {
            "size": [0 if v in self.base else t.size for v, t in enumerate(self.tensors)],
            "storage": [self.root(v) for v in range(len(self.tensors))],
            "resident": [t.resident for t in self.tensors],
            "name": [t.name for t in self.tensors],
        }
        after = self.after(count, n)
        return StepGraph(**rows, **columns, after=after, phase=phase, seconds=seconds, label=labels)

    def after(self, count: int, n: int) -> list[list[int]]:
        """Return what has to come before each operator though it makes nothing that it reads."""
        found: list[set[int]] = [set() for _ in range(count)]
        for i in range(n):
            orders = self.orders[i]
            # A label stands for what a loss makes of the output, and there is none before there is an output.
            found[orders.gradient].add(orders.forward)
            found[orders.derivative].add(orders.forward)
            found[orders.apply].update((orders.gradient, orders.derivative, *self.clipped))
        for tensor, base in self.base.items():
            # What is written into a storage comes after those that read what was there.
            others = [base, *(t for t, b in self.base.items() if b == base and t != tensor)]
            for at in self.tensors[tensor].writes:
                for other in others:
                    found[at].update(r for r in self.tensors[other].reads if r < at)
        return [sorted(j for j in row if j < i) for i, row in enumerate(found)]
