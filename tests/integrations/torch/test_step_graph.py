"""The step graph of a graph module: storages, hazards, phases, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from stowplan.errors import GraphError, ScheduleError
from stowplan.scheduling import Phase, StepGraph
from stowplan.torch import graph, in_order, trace, trace_training

from .nets import loss


def of(function: Any, *inputs: Tensor) -> StepGraph:
    return graph(make_fx(function, tracing_mode="fake")(*inputs))


def number(step: StepGraph, label: str) -> int:
    return step.label.index(label)


def test_views_name_what_they_are_made_of() -> None:
    def function(x: Tensor) -> Tensor:
        y = x + 1
        return y.view(-1)[2:].sin()

    step = of(function, torch.ones(3, 4))
    assert step.label == ("add", "sin")
    assert step.size.tolist() == [48, 48, 40]
    assert step.resident.tolist() == [True, False, False]
    assert step.kept.tolist() == [False, False, True]
    assert step.dependencies().rows() == [[], [0]]


def test_writes_in_place_stand_between_earlier_and_later_readers() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        view = y.view(-1)
        early = y.sin()
        view.mul_(2)
        return early, y.cos()

    step = of(function, torch.ones(3, 4))
    assert step.label == ("add", "sin", "mul_", "cos")
    assert step.dependencies().rows() == [[], [0], [0, 1], [0, 2]]
    assert not step.repeatable[2]


def test_an_input_written_in_place_is_resident() -> None:
    step = of(lambda x: x.sin() + x.add_(1), torch.ones(5))
    assert step.size[step.storage[step.writes[number(step, "add_")][0]]] == 20
    assert step.resident[step.writes[number(step, "add_")][0]]
    assert number(step, "sin") in step.dependencies()[number(step, "add_")]


def test_batch_normalization_writes_statistics_its_schema_omits() -> None:
    module = nn.BatchNorm2d(3)

    def function(x: Tensor, mean: Tensor, variance: Tensor) -> Any:
        return torch.ops.aten.native_batch_norm(x, None, None, mean, variance, True, 0.1, 1e-5)

    step = of(function, torch.ones(2, 3, 4, 4), torch.zeros(3), torch.ones(3))
    norm = number(step, "native_batch_norm")
    written = [int(step.storage[v]) for v in step.writes[norm]]
    assert {step.name[v] for v in written if step.resident[v]} == {"mean_1", "variance_1"}
    assert not step.repeatable[norm]
    step = graph(trace_training(module, (torch.ones(2, 3, 4, 4),), loss))
    norm = number(step, "_native_batch_norm_legit_functional")
    assert not any(step.resident[step.storage[v]] for v in step.writes[norm])
    assert step.repeatable[norm]
    module.eval()
    step = graph(module, (torch.ones(2, 3, 4, 4),))
    assert not any(step.resident[step.storage[v]] for row in step.writes.rows() for v in row if step.size[v])
    assert step.repeatable.all()


def test_phases_of_a_training_step() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    step = graph(trace_training(module, (torch.ones(3, 4),), loss, learning_rate=0.1))
    assert (np.diff(step.phase) >= 0).all()
    assert np.count_nonzero(step.phase == Phase.UPDATE) == 4
    assert all(step.label[i].startswith("add_") for i in np.flatnonzero(step.phase == Phase.UPDATE))
    assert step.phase[number(step, "relu")] == Phase.FORWARD
    assert step.phase[number(step, "threshold_backward")] == Phase.BACKWARD
    assert step.resident_bytes == sum(p.nbytes for p in module.parameters()) + 48
    assert set(graph(trace(module, (torch.ones(3, 4),))).phase.tolist()) == {Phase.FORWARD}


def test_what_is_refused() -> None:
    x = torch.ones(3)
    with pytest.raises(GraphError, match="Linear has to be traced; expected the inputs"):
        graph(nn.Linear(3, 3))
    module = make_fx(lambda x: x + 1)(x)
    for node in module.graph.nodes:
        node.meta.clear()
    with pytest.raises(GraphError, match="x_1: neither inputs were given"):
        graph(module)
    with pytest.raises(GraphError, match="the loss depends on no parameter"):
        trace_training(nn.ReLU(), (x,), loss)
    with pytest.raises(GraphError, match=r"not one graph.* \(aten\.masked_select"):
        graph(make_fx(lambda x: x.masked_select(x > 0), tracing_mode="fake")(x), (x,))
    with pytest.raises(GraphError, match=r"to_sparse.* has a tensor without a storage"):
        graph(make_fx(lambda x: x.to_sparse())(x), (x,))


def test_a_node_that_is_no_operator_of_atens_is_named() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    with pytest.raises(GraphError, match="cond calls cond; expected an ATen operator"):
        graph(Branches(), (torch.ones(3),))


def test_an_order_that_breaks_a_dependency_is_refused() -> None:
    module = make_fx(lambda x: (x + 1).cos())(torch.ones(3))
    with pytest.raises(ScheduleError, match=r"cos \(operator 1\) runs before add"):
        in_order(module, [1, 0], (torch.ones(3),))
    assert isinstance(in_order(module, [0, 1], (torch.ones(3),)), GraphModule)
