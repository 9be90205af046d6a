"""Programs that users reported: what trained wrongly once, was refused unclearly, or left something behind."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.errors import GraphError
from stowplan.torch import measure, schedule

from .steps import assert_same, sgd


def test_what_no_graph_can_have_is_refused_with_its_line() -> None:
    class Draws(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.g = nn.Linear(8, 8), torch.Generator().manual_seed(3)

        def forward(self, x: Tensor) -> Tensor:
            return (self.a(x) + torch.randn(x.shape, generator=self.g)).pow(2).mean()

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 1]), batch_first=True)
            return self.a(packed.data).pow(2).mean()

    refused: list[tuple[nn.Module, tuple[Any, ...]]] = [
        (Draws(), (torch.randn(4, 8),)),
        (Packed(), (torch.randn(2, 3, 8),)),
    ]
    for model, batch in refused:
        before = copy.deepcopy(model.state_dict()), torch.get_rng_state()
        with pytest.raises(GraphError, match=r"not one graph at .*test_reported\.py:\d+ forward \("):
            schedule(model, sgd(model)).step(*batch)
        assert torch.equal(torch.get_rng_state(), before[1])
        assert_same(list(model.state_dict().values()), list(before[0].values()))
    model = nn.Linear(8, 8)
    drawn = schedule(model, sgd(model), lambda model, x: model(x).mean() * float(np.random.rand()))  # noqa: NPY002
    with pytest.raises(GraphError, match=r"test_reported\.py:\d+ <lambda>"):
        drawn.step(torch.randn(4, 8))


@pytest.mark.parametrize("budget", [None, "100%"])
def test_tensors_outside_of_the_model_count_once(budget: str | None) -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))
    teacher, x = copy.deepcopy(model).requires_grad_(False), torch.randn(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    training = schedule(model, optimizer, lambda m, x: F.mse_loss(m(x), teacher(x)), budget=budget)
    training.step(x)
    measured, stats = measure(training.step, x), training.stats
    assert stats.resident == 2 * sum(one.nbytes for one in model.parameters()) + x.nbytes
    assert measured.peak + stats.resident == stats.peak <= stats.plain_peak
