"""What a reordered module computes and has alive: beside eager PyTorch, beside its own order, beside the prediction."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from stowplan.papers.olla.joint import place
from stowplan.torch import Measurement, graph, in_order, measure, reorder, trace, trace_training

from ...scheduling.graphs import random_order
from .nets import BEYOND, MAIN, NETS, loss, make
from .steps import assert_same

tree_leaves = torch.utils._pytree.tree_leaves
TRAINED = [name for name in NETS if name != "decoder"]
RATE = 0.1


@pytest.fixture(autouse=True)
def _operators_as_traced() -> Iterator[None]:
    """Let eager PyTorch run an encoder's layers as the operators that they consist of."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def run(
    module: nn.Module, step: Callable[..., Any], inputs: tuple[Any, ...], training: bool
) -> tuple[list[torch.Tensor], Measurement]:
    """Run a step on copies of the inputs; return all that it returns, changes and draws, and what it had alive.

    The module's parameters and buffers are put back.
    """
    before = copy.deepcopy(module.state_dict())
    own = copy.deepcopy(inputs)
    module.train(training)
    torch.manual_seed(1)
    measured = measure(step, *own)
    left = [measured.result, copy.deepcopy(module.state_dict()), own, torch.get_rng_state()]
    module.load_state_dict(before)
    return [leaf for leaf in tree_leaves(left) if isinstance(leaf, torch.Tensor)], measured


def eager_gradients(module: nn.Module) -> Callable[..., Any]:
    def step(*inputs: Any) -> Any:
        found = loss(module(*inputs))
        parameters = dict(module.named_parameters())
        gradients = torch.autograd.grad(found, list(parameters.values()))
        return found.detach(), dict(zip(parameters, gradients, strict=True))

    return step


def eager_training(module: nn.Module) -> Callable[..., Any]:
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, foreach=False)

    def step(*inputs: Any) -> Any:
        optimizer.zero_grad()
        found = loss(module(*inputs))
        found.backward()
        optimizer.step()
        return found.detach()

    return step


def eager_inference(module: nn.Module) -> Callable[..., Any]:
    return torch.no_grad()(module)


def traced(name: str, kind: str) -> tuple[nn.Module, tuple[Any, ...], GraphModule, Callable[..., Any]]:
    """Return a network, its inputs, a step of it as a graph module, and the same step in eager PyTorch."""
    module, inputs = make(name)
    if kind == "inference":
        return module, inputs, trace(module.eval(), inputs), eager_inference(module)
    if kind == "gradients":
        return module, inputs, trace_training(module, inputs, loss), eager_gradients(module)
    step = trace_training(module, inputs, loss, learning_rate=RATE)
    return module, inputs, step, eager_training(module)


CASES = [
    *((name, kind) for name in MAIN for kind in ("inference", "gradients", "training")),
    *((name, "inference") for name in BEYOND),
    *((name, "training") for name in BEYOND if name in TRAINED),
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_bits_are_the_same_in_predicted_bytes_and_their_arena(name: str, kind: str) -> None:
    module, inputs, step, eager = traced(name, kind)
    ordered = reorder(step, time_limit=None)
    solution = ordered.meta["order"]
    expected, _ = run(module, eager, inputs, kind != "inference")
    found_before, before = run(module, step, inputs, kind != "inference")
    found_after, after = run(module, ordered, inputs, kind != "inference")
    assert_same(found_before, expected)
    assert_same(found_after, expected)
    assert before.peak == solution.before
    assert after.peak == solution.peak
    assert solution.peak <= solution.before
    assert solution.optimal
    assert place(graph(step), solution.order).peak == solution.peak


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "training") for name in ("encoder", "randomly_wired", "regnet", "recurrent")),
        ("decoder", "inference"),
    ],
)
def test_any_order_the_step_graph_allows_gives_the_same_bits(name: str, kind: str) -> None:
    module, inputs, step, eager = traced(name, kind)
    step_graph = graph(step)
    expected, _ = run(module, eager, inputs, kind != "inference")
    for seed in range(4):
        ordered = in_order(step, random_order(step_graph, random.Random(seed)).tolist())
        found, _ = run(module, ordered, inputs, kind != "inference")
        assert_same(found, expected)


def test_autograd_records_nothing_of_a_traced_step() -> None:
    module, inputs = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)), torch.randn(8, 6)
    inputs.requires_grad_()
    for step in (trace(module, (inputs,)), trace_training(module, (inputs,), loss, learning_rate=RATE)):
        ordered = reorder(step)
        measured = measure(ordered, inputs)
        assert not measured.result.requires_grad
        assert measured.peak == ordered.meta["order"].peak


def test_a_live_peak_counted_by_hand() -> None:
    x = torch.ones(100)  # 400 bytes, older

    def step() -> torch.Tensor:
        a = x + 1  # 400
        b = torch.cat([a, a])  # 400 + 800
        c = b[:50]  # a view
        del a, b
        return c.sum() + x.sum()  # 800 + 4, 800 + 8: the view is still named; 800 + 12

    measured = measure(step)
    assert measured.live == (400, 1200, 1200, 804, 808, 812)
    assert measured.peak == 1200


def test_a_write_in_place_makes_no_storage() -> None:
    x = torch.ones(100)
    assert measure(lambda: x.add_(1).mul_(2)).live == (0, 0)
