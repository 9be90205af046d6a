"""Losses whose result holds on to the bytes of all elements: counted, and let go of."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from stowplan.torch import trace
from stowplan.torch.shrinking import SHRINKING

from .steps import same_as_plain

LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "smooth l1": F.smooth_l1_loss,
    "soft margin": F.soft_margin_loss,
    "binary cross entropy": F.binary_cross_entropy,
}


class Holding(TorchDispatchMode):  # type: ignore[misc]
    """Collects the operators whose results have storages larger than they are."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {one.untyped_storage()._cdata for one in tensors((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        self.found |= {
            func
            for one in tensors(result)
            if one.untyped_storage()._cdata not in given
            and one.untyped_storage().nbytes() > one.numel() * one.element_size()
        }
        return result


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def arguments(name: str) -> list[tuple[Any, ...]]:
    """Return arguments of which a loss of `torch.nn.functional` takes one."""
    x, t = torch.rand(6, 5), torch.rand(6, 5)
    numbers = torch.randint(5, (6,))
    signs = torch.ones(6)
    return [
        (x, t),
        (x, numbers),
        (x, t, torch.rand(6, 5)),
        (x, t, signs),
        (torch.rand(7, 6, 5), torch.randint(1, 5, (6, 3)), torch.full((6,), 7), torch.full((6,), 3)),
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_other_loss_of_pytorch_shrinks_its_result() -> None:
    names = [
        name
        for name, one in vars(F).items()
        if callable(one) and (name.endswith("loss") or "entropy" in name or name in ("kl_div", "nll_loss"))
    ]
    assert len(names) > 15
    holding, ran = Holding(), set()
    for name in names:
        for values in arguments(name):
            values[0].requires_grad_()
            parameters = inspect.signature(getattr(F, name)).parameters
            for reduction in ("mean", "sum"):
                options = {"reduction": reduction} if "reduction" in parameters else {}
                try:
                    with holding:
                        getattr(F, name)(*values, **options).sum().backward()
                except (RuntimeError, ValueError, TypeError, IndexError):
                    continue
                ran.add(name)
    assert len(ran) > 15, ran
    assert holding.found == set(SHRINKING)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_peak_is_as_predicted(name: str, reduction: str) -> None:
    def loss(model: nn.Module, x: Tensor, t: Tensor) -> Tensor:
        found = LOSSES[name](model(x), t, reduction=reduction)
        return found.sum() if reduction == "none" else found

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
