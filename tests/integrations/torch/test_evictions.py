"""Steps that swap to a file: the bits of plain PyTorch's, cheaper than recomputation alone, and what fails."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from stowplan import swap_transfers
from stowplan.errors import ScheduleError
from stowplan.swapping import SwapError, SwapFile
from stowplan.torch import Meter, ScheduledTraining, schedule
from stowplan.torch.evictions import Evict, arrive, fetch, leave

from .steps import STEPS, assert_same, left, loss_of, plain, sgd, trained


def deep() -> tuple[nn.Module, tuple[Any, ...]]:
    """A network whose products take so long that a file keeps pace with what they make."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(512, 512), nn.Tanh(), nn.Dropout(0.1)]
    return nn.Sequential(*layers), (torch.randn(1024, 512),)


def swapping(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Any, ...]) -> ScheduledTraining:
    """Return training at a budget that swap makes cheaper."""
    training = schedule(model, optimizer, loss_of, budget="60%", swap=True)
    stats = training.plan(*batch)
    assert stats.swapped > 0
    assert stats.extra < schedule(model, optimizer, loss_of, budget="60%").plan(*batch).extra
    return training


def test_bits_and_bytes() -> None:
    model, batch = deep()
    twin = copy.deepcopy(model)
    expected = plain(twin, sgd(twin), [batch] * STEPS)
    optimizer = sgd(model)
    training = swapping(model, optimizer, batch)
    assert_same(trained(model, optimizer, training, [batch] * STEPS), expected)
    assert training.stats.keeps_values is None
    meter = Meter()
    with meter:
        training.step(*batch)
    assert max(meter.live) == training.stats.peak - training.stats.resident


@pytest.mark.parametrize("fails", ["no room", "write"])
def test_what_cannot_be_written_stays_and_is_said(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    model, batch = deep()
    twin = copy.deepcopy(model)
    expected = plain(twin, sgd(twin), [batch] * STEPS)
    optimizer = sgd(model)
    training = swapping(model, optimizer, batch)

    def refuse(*_: Any) -> Any:
        raise SwapError("the disk is full") if fails == "no room" else OSError("the disk is full")

    if fails == "no room":
        monkeypatch.setattr(SwapFile, "evict", refuse)
    else:
        monkeypatch.setattr(swap_transfers.os, "pwrite", refuse)
    torch.manual_seed(1)
    found = [training.step(*batch) for _ in range(STEPS)]  # in more bytes than predicted
    assert_same([*found, *left(model, optimizer)], expected)
    assert "the disk is full" in str(training.stats.keeps_values)


def test_names_come_back_as_they_lay() -> None:
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    names = whole, whole.t(), whole[1:3, ::2], whole.view(torch.int32)
    expected = [one.clone() for one in names]
    strides = [(one.stride(), one.storage_offset()) for one in names]
    kept = Evict(None)(*names)
    leave(kept, *names)
    del whole, names
    found = arrive(kept, fetch(kept))
    assert [(one.stride(), one.storage_offset()) for one in found] == strides
    assert len({one.untyped_storage().data_ptr() for one in found}) == 1
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_a_device_s_values_are_refused() -> None:
    model = nn.Linear(4, 4, device="meta")
    training = schedule(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_of, swap=True)
    with pytest.raises(ScheduleError, match="expected a model on the host"):
        training.plan(torch.randn(2, 4, device="meta"))
