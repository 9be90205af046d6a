"""What a graph would lose of a step: draws that nothing reads, detached tensors, layouts, what a module lacks."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.errors import GraphError
from stowplan.torch import compile_backend, schedule

from .steps import STEPS, assert_same, left, plain, same_as_plain, sgd

LOGGER = logging.getLogger("model")


class Heads(nn.Module):
    """Two heads, of which the loss reads one; the other draws."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 8)
        self.main, self.other = (nn.Sequential(nn.Dropout(p), nn.Linear(8, 4)) for p in (0.3, 0.5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.first(x)
        return self.other(x), self.main(x)


def main_head(model: nn.Module, x: Tensor) -> Tensor:
    torch.rand(3)
    return model(x)[1].square().mean()


def test_functions_that_loggers_get_after_us_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers, imported after stowplan, gives ``Logger`` a ``warning_once``."""
    once = functools.lru_cache(None)(lambda logger, text: logger.warning(text))
    monkeypatch.setattr(logging.Logger, "warning_once", once, raising=False)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        LOGGER.warning_once("a loss")  # type: ignore[attr-defined]
        return main_head(model, x)

    torch.manual_seed(0)
    same_as_plain(Heads(), [(torch.randn(8, 12),)] * STEPS, loss)


def test_draws_that_nothing_reads_are_made() -> None:
    torch.manual_seed(0)
    model, batches = Heads(), [(torch.randn(8, 12),)] * STEPS
    same_as_plain(model, batches, main_head)
    twins = Heads(), Heads()
    twins[1].load_state_dict(twins[0].state_dict())
    compiled = torch.compile(main_head, backend=compile_backend(), dynamic=False)
    optimizers = [sgd(one) for one in twins]
    expected = plain(twins[0], optimizers[0], batches, main_head)
    assert_same(plain(twins[1], optimizers[1], batches, compiled), expected)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(16, 4), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.attention(x, x, x)[0]).transpose(0, 1)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": F.mse_loss,
    "smooth": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "logarithm": lambda y, t: -(F.log_softmax(y.transpose(1, 2), -1) * t.transpose(1, 2)).mean(),
    "softplus": lambda y, t: (F.softplus(y.transpose(1, 2)) * t.transpose(1, 2)).mean(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_transposed_tensors(name: str) -> None:
    torch.manual_seed(0)
    batch = torch.randn(6, 5, 16), torch.randn(5, 6, 16)
    same_as_plain(Attention(), [batch] * STEPS, lambda model, x, t: LOSSES[name](model(x), t))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        return self.layer(x).square().mean() * (2 if "doubled" in vars(self) else 1)


def test_what_is_missing_in_a_module() -> None:
    torch.manual_seed(0)
    models = Counts(), Counts()
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [sgd(model) for model in models]
    training = schedule(models[1], optimizers[1])
    for k in range(6):
        if k == 4:
            for model in models:
                model.doubled = True
        x = torch.randn(3 + k % 2, 4)
        expected = plain(models[0], optimizers[0], [(x,)], lambda model, x: model(x))
        torch.manual_seed(1)
        assert_same([training.step(x), *left(models[1], optimizers[1])], expected)
        assert models[1].calls == models[0].calls == k + 1


def test_a_number_of_numpys_is_refused() -> None:
    model, weight = nn.Linear(4, 4), np.float64(0.5)

    def loss(model: Any, x: Tensor) -> Tensor:
        return model(x).square().mean() * weight

    with pytest.raises(GraphError, match="a number of NumPy's"):
        schedule(model, sgd(model), loss).step(torch.randn(3, 4))


def test_tensors_of_numbers_are_resident() -> None:
    model, x = nn.Linear(4, 4, bias=False), torch.randn(3, 4)
    training = schedule(
        model, sgd(model), lambda model, x: (model(x) * torch.tensor([1.0, 2, 3, 4])).square().mean()
    )
    assert training.plan(x).resident == 64 + 64 + 48 + 16  # weight, momentum, batch, numbers


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with suppress(AttributeError):
            x = x + self.state
        self.state = self.layer(x).detach()
        return self.layer(x).square().mean()


def test_what_is_caught_as_missing_is_refused() -> None:
    model = Recurrent()
    with pytest.raises(
        GraphError, match=r"catches AttributeError at .*test_outside\.py:\d+ forward, and no guard"
    ):
        schedule(model, sgd(model)).step(torch.randn(3, 4))
    assert not hasattr(model, "state")


def test_what_the_step_does_not_read_of_a_batch_is_resident() -> None:
    model, x = nn.Linear(4, 4, bias=False), torch.randn(3, 4)
    training = schedule(model, sgd(model), lambda model, x, unread: model(x).square().mean())
    assert training.plan(x, {"of": [torch.ones(100)]}).resident == 64 + 64 + 48 + 400
