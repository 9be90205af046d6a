"""A step by a plan compared with a plain one, from the same state, which is put back afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn


def differences(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    plain: Callable[[], torch.Tensor],
    planned: Callable[[], torch.Tensor],
) -> list[str]:
    """Return the names of what two steps, each of which returns the loss, leave with other bits."""

    def tensors() -> dict[str, torch.Tensor]:
        return dict([*model.named_parameters(), *model.named_buffers()])

    def restore() -> None:
        with torch.no_grad():
            for name, one in tensors().items():
                one.copy_(before[name])
        optimizer.state.clear()
        optimizer.state.update((one, copy.deepcopy(state)) for one, state in states)
        for one, gradient in gradients:
            one.grad = gradient.clone()

    every = [one for group in optimizer.param_groups for one in group["params"]]
    gradients = [(one, one.grad.clone()) for one in every if one.grad is not None]
    states = [(one, copy.deepcopy(state)) for one, state in optimizer.state.items()]
    before = copy.deepcopy(tensors())
    try:
        with torch.random.fork_rng(devices=()):
            expected = {"loss": plain()} | tensors()
            expected = {name: one.clone() for name, one in expected.items()}
        restore()
        with torch.random.fork_rng(devices=()):
            found = {"loss": planned()} | tensors()
        return [name for name, one in expected.items() if not _same(one, found[name])]
    finally:
        restore()


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and bool(torch.equal(one.nan_to_num(), other.nan_to_num()))
