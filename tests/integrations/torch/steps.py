"""A training step of PyTorch's, and one by a schedule, compared to the bit and to the byte."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.torch import ScheduledTraining, measure, schedule

from .nets import loss

STEPS = 3

Make = Callable[[nn.Module], torch.optim.Optimizer]


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(model: nn.Module, *batch: Any) -> Tensor:
    return loss(model(*batch))


def plain(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: list[tuple[Any, ...]],
    loss_of: Any = loss_of,
    before_update: Any = None,
) -> list[Tensor]:
    """Train as PyTorch does; return what each step returned, and all that the steps left."""
    torch.manual_seed(1)
    found = [stepped(model, optimizer, batch, loss_of, before_update) for batch in batches]
    return [*found, *left(model, optimizer)]


def stepped(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Any, ...],
    loss_of: Any = loss_of,
    before_update: Any = None,
) -> Tensor:
    """Run a step as PyTorch does; return the loss."""
    optimizer.zero_grad()
    one: Tensor = loss_of(model, *batch)
    one.backward()
    if before_update is not None:
        before_update(model)
    optimizer.step()
    return one.detach()


def left(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    states = optimizer.state_dict()["state"]
    state = torch.utils._pytree.tree_leaves([states[number] for number in sorted(states)])
    tensors = [*model.state_dict().values(), *state, torch.get_rng_state()]
    return [copy.deepcopy(one) for one in tensors if isinstance(one, Tensor)]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def trained(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    training: ScheduledTraining,
    batches: list[tuple[Any, ...]],
) -> list[Tensor]:
    """Train by a schedule, whose prediction has to hold to the byte; return as `plain` does."""
    torch.manual_seed(1)
    found = []
    for batch in batches:
        stats = training.plan(*batch)
        fresh = not optimizer.state
        measured = measure(training.step, *batch)
        # The state that the first step makes is resident in the prediction.
        assert measured.peak + stats.resident <= stats.peak + (stats.resident if fresh else 0)
        if not fresh:
            assert measured.peak + stats.resident == stats.peak
        found.append(measured.result)
    return [*found, *left(model, optimizer)]


def same_as_plain(
    model: nn.Module, batches: list[tuple[Any, ...]], loss_of: Any = loss_of, make: Make = sgd, **options: Any
) -> ScheduledTraining:
    """Train a model by schedules with these options, and a copy plainly, to the same bits; return the training."""
    twin = copy.deepcopy(model)
    expected = plain(twin, make(twin), batches, loss_of)
    optimizer = make(model)
    training = schedule(model, optimizer, loss_of, **options)
    assert_same(trained(model, optimizer, training, batches), expected)
    return training


class Net(nn.Module):
    """Two layers of equal, tied weights; one that is frozen, one that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 24), nn.Linear(24, 24)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(24, 24).requires_grad_(False)
        self.unused = nn.Linear(24, 24)
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second, self.frozen):
            x = F.relu(layer(x), inplace=True)
        return self.head(F.dropout(x, 0.3, self.training))


def net() -> tuple[Net, list[tuple[Any, ...]]]:
    torch.manual_seed(0)
    model = Net()
    return model, [(torch.randn(64, 24), torch.randint(4, (64,))) for _ in range(4)]


def entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def asserting(model: nn.Module, x: Tensor) -> Tensor:
    """Asserts in a module whose assertions pytest leaves as they are."""
    one: Tensor = model(x).sum()
    assert torch.isfinite(one)
    return one
