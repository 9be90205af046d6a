"""A compiled step within a budget: the bits of the same compiler without one, in the bytes that were predicted."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.fx import GraphModule, Interpreter
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.errors import BudgetError, GraphError, ScheduleError
from stowplan.torch import CompileBackend, Meter, compile_backend

from .steps import STEPS, assert_same, left, sgd

Batch = tuple[Tensor, ...]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def perceptron() -> tuple[nn.Module, Batch]:
    layers = [part for _ in range(6) for part in (nn.Linear(48, 48), nn.GELU(), nn.Dropout(0.2))]
    return nn.Sequential(*layers, nn.Linear(48, 10)), (torch.randn(128, 48), torch.randint(10, (128,)))


def transformer() -> tuple[nn.Module, Batch]:
    layers = [nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True) for _ in range(3)]
    return nn.Sequential(*layers, nn.Linear(32, 10)), (torch.randn(8, 24, 32), torch.randint(10, (8, 24)))


def convolutional() -> tuple[nn.Module, Batch]:
    layers: list[nn.Module] = []
    for k in range(5):
        layers += [nn.Conv2d(8 if k else 3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)]
        layers += [nn.Dropout(0.2)]
    rest = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return nn.Sequential(*layers, *rest), (torch.randn(4, 3, 24, 24), torch.randint(10, (4,)))


def entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).flatten(0, -2), y.flatten())


def made(build: Callable[[], tuple[nn.Module, Batch]]) -> tuple[nn.Module, Batch]:
    torch.manual_seed(0)
    return build()


def metered(meters: list[Meter]) -> Callable[..., Any]:
    """Return a compiler whose graphs run in the meter, if there is one: dynamo accepts none around them."""

    def compiler(module: GraphModule, _: Any) -> Any:
        def run(args: list[Any]) -> Any:
            if not meters:
                return Interpreter(module).boxed_run(args)
            with meters[0]:
                return Interpreter(module).boxed_run(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return compiler


def trained(
    model: nn.Module,
    batches: Sequence[Batch],
    backend: Any,
    meters: list[Meter],
    loss: Callable[..., Tensor] = entropy,
) -> tuple[list[Tensor], int]:
    """Train a copy; return the losses and all that is left, and the most bytes alive in the last step's graphs."""
    own = copy.deepcopy(model)
    optimizer, compiled = sgd(own), torch.compile(loss, backend=backend, dynamic=False)
    torch.manual_seed(1)
    losses = []
    for k, batch in enumerate(batches):
        optimizer.zero_grad()
        if k == len(batches) - 1:
            meters.append(Meter())
        one = compiled(own, *batch)
        one.backward()
        losses.append(one.detach())
        meter = meters.pop() if meters else Meter()
        optimizer.step()
    return [*losses, *left(own, optimizer)], max(meter.live, default=0)


def alike(
    model: nn.Module,
    batches: Sequence[Batch],
    backend: CompileBackend,
    plain: Callable[..., Tensor] = entropy,
    loss: Callable[..., Tensor] = entropy,
    beside: str = "aot_eager",
) -> CompileBackend:
    """Train by a backend, and by one of PyTorch's that it stands beside, to the same bits; return the first."""
    expected, _ = trained(model, batches, beside, [], plain)
    torch._dynamo.reset()
    found, _ = trained(model, batches, backend, [], loss)
    assert_same(found, expected)
    return backend


@pytest.mark.parametrize("build", [perceptron, transformer, convolutional])
def test_budgets_keep_bits_and_bytes(build: Callable[[], tuple[nn.Module, Batch]]) -> None:
    model, batch = made(build)
    batches = [batch] * STEPS
    expected, _ = trained(model, batches, "aot_eager", [])
    torch._dynamo.reset()
    with pytest.raises(BackendCompilerFailed, match=r"BudgetError.*the least is") as caught:
        trained(model, batches, compile_backend(0), [])
    error = caught.value.inner_exception
    assert isinstance(error, BudgetError)
    before = None
    for budget in (None, "80%", "65%", error.least):
        torch._dynamo.reset()
        meters: list[Meter] = []
        backend = compile_backend(budget, compiler=metered(meters))
        found, peak = trained(model, batches, backend, meters)
        assert_same(found, expected)
        (stats,) = backend.stats
        assert peak == stats.peak - stats.resident
        if isinstance(budget, str):
            assert stats.peak <= float(budget[:-1]) / 100 * stats.plain_peak
        assert before is None or peak < before
        assert (stats.recomputed > 0) == (budget is not None)
        before = peak
    assert stats.peak <= error.least < 0.65 * stats.plain_peak


class Counts(nn.Module):
    """Reads a buffer, and changes it later; hands on a view."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = perceptron()[0][:-1], nn.Linear(48, 10)
        self.register_buffer("mean", torch.zeros(48))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x * (1 + self.mean))
        self.mean.mul_(0.5).add_(y.detach().mean(0))
        return self.head(y * self.mean.sum()).t().t()


def outside(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return F.cross_entropy(model(x), y)


@pytest.mark.parametrize("loss", [entropy, outside])
def test_buffers_that_forward_changes_are_read_as_they_were(loss: Callable[..., Tensor]) -> None:
    model, batch = made(lambda: (Counts(), perceptron()[1]))
    backend = alike(model, [batch] * STEPS, compile_backend("75%"), loss, loss)
    assert any(stats.recomputed for stats in backend.stats)


def test_each_shape_is_split_for_itself_and_inference_not_at_all() -> None:
    model, (x, y) = made(perceptron)
    backend = alike(model, [(x, y), (x[:96], y[:96])], compile_backend("75%"))
    assert [stats.recomputed > 0 for stats in backend.stats] == [True, True]
    with torch.no_grad():
        assert torch.equal(torch.compile(model.eval(), backend=backend)(x), model(x))
    assert len(backend.stats) == 2


def test_what_cannot_be_split_is_refused() -> None:
    model, (x, _) = made(perceptron)
    with pytest.raises(BackendCompilerFailed, match=r"expected torch\.compile.*dynamic=False") as caught:
        torch.compile(model, backend=compile_backend(), dynamic=True)(x)
    assert isinstance(caught.value.inner_exception, GraphError)
    for loss, match in (
        (lambda x: x.masked_select(x > 0).sum(), "masked_select returns depends on values"),
        (lambda x: torch.linalg.inv(x @ x.T).sum(), "calls with_effects; expected an ATen operator"),
        (lambda x: x.prod(1).sum(), "prod has a backward pass along a dimension that depends on values"),
    ):
        with pytest.raises(BackendCompilerFailed, match=match) as caught:
            torch.compile(loss, backend=compile_backend(), dynamic=False, fullgraph=True)(
                torch.eye(3).requires_grad_()
            )
        assert isinstance(caught.value.inner_exception, GraphError)
    with pytest.raises(ScheduleError, match="'triton'; expected 'eager', 'inductor'"):
        compile_backend(compiler="triton")
    with pytest.raises(ValueError, match="expected bytes"):
        compile_backend("plenty")


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++, which is not there")
def test_inductor_gives_the_bits_that_it_gives_without_a_budget() -> None:
    model, batch = made(lambda: (perceptron()[0][9:], perceptron()[1]))
    with torch._inductor.config.patch(fallback_random=True):
        backend = alike(model, [batch] * 2, compile_backend("85%", compiler="inductor"), beside="inductor")
    assert backend.stats[0].recomputed > 0


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++, which is not there")
def test_within_a_budget_of_inductors_what_fuses_alone_costs_nothing() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.sigmoid(torch.sin(x))).sum()

    x = torch.randn(1024, requires_grad=True)
    backend = compile_backend("95%", compiler="inductor")
    torch.compile(chain, backend=backend, dynamic=False)(x).backward()
    (stats,) = backend.stats
    assert stats.peak <= 0.95 * stats.plain_peak
    assert stats.extra == 0
