"""A training step of PyTorch's, and one by a schedule, compared to the bit and to the byte."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from stowplan.torch import ScheduledTraining, measure

from .nets import loss

STEPS = 3


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
    found = []
    for batch in batches:
        optimizer.zero_grad()
        one = loss_of(model, *batch)
        one.backward()
        if before_update is not None:
            before_update(model)
        optimizer.step()
        found.append(one.detach())
    return [*found, *left(model, optimizer)]


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
