"""Programs that ask whether they are compiled: served like plain PyTorch, or not without a word."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.fx._symbolic_trace import is_fx_symbolic_tracing

from stowplan.errors import GraphError
from stowplan.torch import schedule, trace_training

Forward = Callable[["Asking", torch.Tensor], torch.Tensor]


class Asking(nn.Module):
    """Computes what a function says."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("total", torch.zeros(4))
        self.calls, self.of = 0, forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.of(self, self.norm(self.linear(x)))


def _same(model: Asking, h: torch.Tensor) -> torch.Tensor:
    if not torch.compiler.is_compiling():
        model.calls += 1
    h = nn.functional.dropout(h, 0.5)
    model.total.add_(h.detach().sum(0))
    return h.clone().relu_() * torch.tensor(2.0)


def _operator(_: Asking, h: torch.Tensor) -> torch.Tensor:
    return h * 2 if torch.compiler.is_compiling() else h + h


def _values(_: Asking, h: torch.Tensor) -> torch.Tensor:
    return h if not torch.compiler.is_dynamo_compiling() and (h > 0).all() else h + 1


def _random(_: Asking, h: torch.Tensor) -> torch.Tensor:
    if not torch.compiler.is_compiling():
        torch.rand(3)
    return h


def _written(model: Asking, h: torch.Tensor) -> torch.Tensor:
    if not torch.compiler.is_compiling():
        model.total.add_(1)
    return h


def _fails(_: Asking, h: torch.Tensor) -> torch.Tensor:
    return h if torch.compiler.is_compiling() else torch.from_numpy(h.detach().numpy()) + h


PROGRAMS = {
    _same: None,
    _operator: "is not plain PyTorch's is aten.mul.Tensor",
    _values: "plain PyTorch reads values at .*test_asking.py:[0-9]+ _values",
    _random: "leaves out is aten.rand.default",
    _written: "leaves out is aten.add_.Tensor",
    _fails: "a run on tensors without bytes fails at .* _fails",
}


def _loss(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


@pytest.mark.parametrize("forward", PROGRAMS, ids=lambda one: one.__name__)
def test_a_graph_of_a_program_that_asks_is_held_against_plain_pytorch(forward: Forward) -> None:
    model = Asking(forward)
    state, random = model.linear.weight.clone(), torch.get_rng_state()
    if PROGRAMS[forward] is None:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="stowplan")
            trace_training(model, (torch.ones(3, 4),), _loss)
    else:
        with pytest.warns(
            UserWarning, match=f"compiling\\(\\) at .*test_asking.py:[0-9]+.*{PROGRAMS[forward]}"
        ):
            trace_training(model, (torch.ones(3, 4),), _loss)
    assert model.calls == 0
    assert torch.equal(model.linear.weight, state)
    assert torch.equal(torch.get_rng_state(), random)


def test_strict_steps_compute_as_plain_pytorch_or_not_at_all() -> None:
    model = Asking(_operator)
    training = schedule(
        model, torch.optim.SGD(model.parameters(), 0.1), lambda model, x: _loss(model(x)), strict=True
    )
    before = {name: one.clone() for name, one in model.state_dict().items()}
    for _ in range(2):
        with pytest.raises(GraphError, match="plain PyTorch's is aten"):
            training.step(torch.ones(3, 4))
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    model.of = _same
    assert training.differences(torch.ones(3, 4)) == []


def test_attention_that_pytorch_runs_in_one_operator_is_no_silent_difference() -> None:
    """In evaluation mode, where nothing requires a gradient, PyTorch itself asks whether it is traced."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.MultiheadAttention(8, 2, batch_first=True).eval().requires_grad_(False)
            self.linear = nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return _loss(self.linear(self.frozen(x, x, x)[0]))

    with pytest.warns(UserWarning, match="activation.py:[0-9]+.*is not plain PyTorch's"):
        trace_training(Head(), (torch.ones(2, 3, 8),), lambda loss: loss)


_beside: list[threading.Thread] = []


@torch.compiler.allow_in_graph
def _traced(h: torch.Tensor) -> torch.Tensor:
    while _beside and is_fx_symbolic_tracing():
        thread = _beside.pop()
        thread.start()
        thread.join(0.2)  # it may go on when the trace is over
    return h.relu()


def test_a_step_runs_in_another_thread_while_one_is_planned() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    training = schedule(model, optimizer, lambda model, x: model(x).sum())
    planned = Asking(lambda _, h: _traced(h))
    other = schedule(planned, torch.optim.Adam(planned.parameters()), lambda model, x: model(x).sum())
    training.step(torch.ones(3, 4))
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(training.step(torch.ones(3, 4))))
    _beside.append(thread)
    other.plan(torch.ones(3, 4))
    assert not _beside
    thread.join()
    assert len(found) == 1
