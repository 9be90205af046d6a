"""Writes in place of a scheduled step: which become operators with results of their own, and which stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.errors import GraphError
from stowplan.torch import schedule

from .steps import STEPS, same_as_plain, sgd


def itself(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layer = kind(12, 12, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0].square().mean()


def test_gates_written_in_parts_keep_their_bits() -> None:
    torch.manual_seed(0)
    model, batch = Recurrent(nn.GRU), (torch.randn(4, 8, 12),)
    same_as_plain(model, [batch] * STEPS, itself)


class Writes(nn.Module):
    def __init__(self, write: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.first, self.second, self.write = nn.Linear(8, 16), nn.Linear(16, 1), write

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        self.write(y)
        return self.second(torch.tanh(y)).square().mean()


def assign(y: Tensor) -> None:
    y[:, ::2] = 0.5


def swap_columns(y: Tensor) -> None:
    y[:, ::2], y[:, 1::2] = y[:, 1::2].clone(), y[:, ::2].clone()


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y[:, ::2].relu_(),
        lambda y: y[:, 1::2].mul_(3),
        lambda y: y[::2].relu_(),
        lambda y: y[:4, :8].sigmoid_(),
        lambda y: y.t()[::2].mul_(2),
        lambda y: y.view(8, 4, 4)[:, :, ::2].relu_(),
        lambda y: y.unfold(1, 4, 4)[:, :, 0].mul_(2),
        lambda y: torch.diagonal(y).mul_(5),
        assign,
        swap_columns,
    ],
)
def test_writes_on_strided_parts_keep_their_bits(write: Callable[[Tensor], None]) -> None:
    torch.manual_seed(0)
    same_as_plain(Writes(write), [(torch.randn(8, 8),)] * STEPS, itself)


class WritesInParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.first(x), inplace=True), 0.5)
        y = self.second(x) * 2
        y[:, 1:3].mul_(2)
        before = y.view(-1)
        y.add_(1)
        return (before.sum() + F.hardtanh(x + 1, inplace=True).sum()) / 100


def test_whole_writes_run_in_place() -> None:
    torch.manual_seed(0)
    training = same_as_plain(WritesInParts(), [(torch.randn(4, 12),)] * STEPS, itself)
    written = {node.target for node in training._latest.run.graph.nodes}  # type: ignore[union-attr]
    aten = torch.ops.aten
    assert {aten.relu_.default, aten.bernoulli_.float, aten.div_.Scalar} <= written
    assert aten.hardtanh.default in written  # the backward pass reads what it would overwrite


class TakesItselfTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x) * 2
        y = y.masked_scatter(x > 0, y) * 3
        y = y.index_add(0, torch.arange(8).flip(0), y) * 4
        return y.index_put((torch.arange(8).flip(0),), y).square().mean()


def test_what_takes_its_first_argument_twice_does_not_write_on_it() -> None:
    torch.manual_seed(0)
    same_as_plain(TakesItselfTwice(), [(torch.randn(8, 8),)] * STEPS, itself)


def test_an_operator_without_a_trace_is_refused() -> None:
    model = Recurrent(nn.LSTM)
    training = schedule(model, sgd(model))
    if torch.backends.mkldnn.is_available():
        with pytest.raises(GraphError, match="mkldnn_rnn_layer"):
            training.plan(torch.randn(4, 8, 12))
    with torch.backends.mkldnn.flags(enabled=False):
        same_as_plain(model, [(torch.randn(4, 8, 12),)] * STEPS, itself)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.pow_(0.5),
        lambda x: x.pow_(x.detach() + 1),
        lambda x: x.float_power_(2.0),
        lambda x: x.transpose_(0, 1),
        lambda x: x.squeeze_(),
    ],
)
def test_a_write_whose_functional_form_has_another_name(write: Any) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(12, 12)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.sigmoid(self.linear(x)).double()
            return write(y * 2).sum() + y.sum()

    torch.manual_seed(0)
    model, batch = Writes(), (torch.randn(12, 12),)
    same_as_plain(model, [batch] * STEPS, itself)
