"""Losses whose result holds on to the bytes of all elements: counted, and let go of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.torch import trace

from .steps import same_as_plain

LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "smooth l1": F.smooth_l1_loss,
    "soft margin": F.soft_margin_loss,
    "binary cross entropy": F.binary_cross_entropy,
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_peak_is_as_predicted(name: str, reduction: str) -> None:
    def loss(model: nn.Module, x: Tensor, t: Tensor) -> Tensor:
        return LOSSES[name](model(x), t, reduction=reduction).sum()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Sigmoid(), nn.Linear(32, 16), nn.Sigmoid())
    batch = torch.randn(128, 8), torch.rand(128, 16)
    training = same_as_plain(model, [batch] * 2, loss)
    assert training.step(*batch).untyped_storage().nbytes() == 4


@pytest.mark.parametrize(("rows", "reduction"), [(4, "none"), (0, "mean")])
def test_a_result_that_is_as_large_as_it_looks_is_not_copied(rows: int, reduction: str) -> None:
    class Loss(nn.Module):
        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return F.mse_loss(x, t, reduction=reduction)

    graph = trace(Loss(), (torch.rand(rows), torch.rand(rows))).graph
    assert graph.find_nodes(op="call_function", target=torch.ops.aten.mse_loss.default)
    assert not graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
