"""NNTrainer's planner: execution orders, lifetimes, merged storages, and what its paper's tables say."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import GraphError
from stowplan.papers.nntrainer.layers import Layer, Lifespan, Merge, step_graph
from stowplan.papers.olla.joint import blocks_of
from stowplan.scheduling import StepGraph

from ...scheduling.graphs import random_order

IN_PLACE: dict[str, Any] = {"merge": Merge.IN_PLACE, "needs_input": Lifespan.FORWARD}


def loss(size: int) -> Layer:
    return Layer("loss", size, label=size, needs_input=Lifespan.FORWARD | Lifespan.DERIVATIVE)


def lifetimes(graph: StepGraph) -> dict[str, tuple[int, int]]:
    """First and last execution order of each storage that is not resident."""
    blocks = blocks_of(graph, np.arange(len(graph))).problem
    assert blocks.id is not None
    return dict(
        zip(blocks.id, zip(blocks.start.tolist(), (blocks.end - 1).tolist(), strict=True), strict=True)
    )


def small() -> list[Layer]:
    return [
        Layer("input", 8, inputs=()),
        Layer("conv", 6, weights=(5,), temporaries=((3, Lifespan.FORWARD), (2, Lifespan.ITERATION))),
        Layer("relu", 6, **IN_PLACE, needs_output=Lifespan.FORWARD | Lifespan.DERIVATIVE),
        Layer("linear", 4, weights=(7, 1)),
        loss(4),
    ]


def test_lifetimes_and_merged_storages() -> None:
    assert lifetimes(step_graph(small())) == {
        "input": (0, 10),  # for the gradient of conv
        "conv": (1, 9),  # and relu, in place, which needs its output for its derivative
        "temporary 0 of conv": (1, 1),
        "temporary 1 of conv": (1, 12),
        "linear": (3, 5),  # for the derivative of the loss
        "loss": (4, 4),
        "derivative of linear": (5, 7),
        "gradient of weight 0 of linear": (6, 8),
        "gradient of weight 1 of linear": (6, 8),
        "derivative of relu": (7, 10),  # and that of conv, in place
        "gradient of weight 0 of conv": (10, 12),
    }


def test_what_no_training_reaches_has_no_derivative() -> None:
    layers = [Layer("input", 8, inputs=()), Layer("frozen", 6, weights=(5,), frozen=True), *small()[3:]]
    storages = lifetimes(step_graph(layers))
    absent = {"derivative of frozen", "derivative of input", "gradient of weight 0 of frozen"}
    assert not absent & set(storages)
    assert storages["input"] == (0, 1)


def random_layers(rng: random.Random) -> list[Layer]:
    layers = [Layer("layer 0", rng.randint(0, 9), inputs=())]
    lifespans = [Lifespan.FORWARD | more for more in (Lifespan(0), Lifespan.GRADIENT, Lifespan.DERIVATIVE)]
    for i in range(1, rng.randint(2, 7)):
        sources = rng.sample(range(i), rng.randint(1, min(i, 2))) if rng.random() < 0.5 else [i - 1]
        merge = rng.choice(list(Merge))
        output = layers[sources[0]].output if merge != Merge.NONE else rng.randint(0, 9)
        layers.append(
            Layer(
                f"layer {i}",
                output,
                inputs=tuple(f"layer {j}" for j in sources),
                weights=tuple(rng.randint(0, 9) for _ in range(rng.choice([0, 0, 1, 2]))),
                temporaries=((rng.randint(0, 9), Lifespan(rng.randint(1, 15))),)
                if rng.random() < 0.3
                else (),
                needs_input=rng.choice(lifespans),
                needs_output=rng.choice(lifespans),
                merge=merge,
                frozen=rng.random() < 0.2,
            )
        )
    return layers


@given(st.integers(0, 2**40))
@settings(settings.get_profile("usual"))
def test_in_any_order_nobody_reads_what_has_been_overwritten(seed: int) -> None:
    rng = random.Random(seed)
    layers = random_layers(rng)
    views = {layer.name for layer in layers if layer.merge == Merge.VIEW}
    graph = step_graph(layers, clipping=rng.random() < 0.3)
    holds: dict[int, set[int]] = {}  # by storage the values whose content it has
    for operator in random_order(graph, rng).tolist():
        for v in graph.reads[operator]:
            assert graph.resident[v] or v in holds[int(graph.storage[v])], graph.name[v]
        layer = graph.label[operator].split(" ", 1)[1]
        for v in graph.writes[operator]:
            storage = int(graph.storage[v])
            holds[storage] = {v} | (holds.get(storage, set()) if layer in views else set())


def test_shared_weights_are_there_once_and_applied_once() -> None:
    layers = Layer("input", 4, inputs=()), Layer("first", 4, weights=(9,)), Layer("again", 4, shares="first")
    graph = step_graph([*layers, loss(4)])
    assert graph.name.count("weight 0 of first") == graph.name.count("gradient of weight 0 of first") == 1
    assert not any("again" in name for name in graph.name if "weight" in name)
    assert [label for label in graph.label if label.startswith("apply")] == ["apply first"]
    gradient = graph.name.index("gradient of weight 0 of first")
    writers = [graph.label[at] for at, row in enumerate(graph.writes.rows()) if gradient in row]
    assert writers == ["gradient again", "gradient first"]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([Layer("a", 1), Layer("a", 1)], "two layers are named 'a'"),
        ([Layer("a", 1, inputs=("b",))], "layer a reads 'b'; expected the name of a layer before it"),
        ([Layer("a", -1)], "layer a: -1 bytes; expected 0 or more"),
        ([Layer("a", 1, weights=(-2,))], "layer a: -2 bytes"),
        ([Layer("a", 4), Layer("b", 5, merge=Merge.VIEW)], "layer b is a view of 5 bytes of a; expected 4"),
        ([Layer("a", 4, weights=(1,), label=3), Layer("b", 5)], "layer a has a label and is read"),
        ([Layer("a", 4), Layer("b", 5, shares="a")], "layer b shares the weights of 'a'; expected a layer"),
        ([Layer("a", 4, weights=(1,)), Layer("b", 5, weights=(1,), shares="a")], "and none of its own"),
        ([Layer("a", 4, weights=(1,)), Layer("b", 5, shares="a", frozen=True)], "expected `frozen` as of a"),
    ],
)
def test_what_is_wrong_is_named(layers: list[Layer], message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        step_graph(layers)
