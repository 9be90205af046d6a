"""A compiled step within a budget: the bits of plain PyTorch, or of inductor, and the peak as it was said."""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)
from torch.utils.checkpoint import checkpoint

from experiments.torch.metered import metered
from stowplan.errors import GraphError, ScheduleError
from stowplan.torch import CompileBackend, Meter, compile_backend
from stowplan.torch.nodes import BATCH_NORM

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


def trained(
    model: nn.Module,
    batches: Sequence[Batch],
    backend: Any,
    meters: list[Meter],
    loss: Callable[..., Tensor] = entropy,
) -> tuple[list[Tensor], int]:
    """Train a copy, by a backend or plainly; return what is left, and the peak of the last step's graphs."""
    own = copy.deepcopy(model)
    optimizer = sgd(own)
    compiled = loss if backend is None else torch.compile(loss, backend=backend, dynamic=False)
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
    beside: str | None = None,
) -> CompileBackend:
    """Train by a backend, and plainly or by one that it stands beside, to the same bits; return the backend."""
    expected, _ = trained(model, batches, beside, [], plain)
    torch._dynamo.reset()
    found, _ = trained(model, batches, backend, [], loss)
    assert_same(found, expected)
    return backend


@pytest.mark.parametrize("build", [perceptron, transformer, convolutional])
def test_bits_are_kept_and_peaks_are_as_said(build: Callable[[], tuple[nn.Module, Batch]]) -> None:
    model, batch = made(build)
    batches = [batch] * STEPS
    expected, _ = trained(model, batches, None, [])
    most = None
    for budget in (None, "80%", "65%", 0):
        torch._dynamo.reset()
        meters: list[Meter] = []
        backend = compile_backend(budget, compiler=metered(meters))
        above = pytest.warns(UserWarning, match="above the budget of 0 B") if budget == 0 else nullcontext()
        with above:
            found, peak = trained(model, batches, backend, meters)
        assert_same(found, expected)
        (stats,) = backend.stats
        assert abs(peak - (stats.peak - stats.resident)) <= 0.001 * peak
        if budget is None:
            most = stats.kept
        elif budget:
            assert stats.peak <= (float(budget[:-1]) / 100 + 0.03) * stats.plain_peak
        assert stats.kept <= most
        assert stats.recomputed > 0
    assert stats.peak < 0.65 * stats.plain_peak


def test_batch_normalization_runs_again() -> None:
    """It reads running statistics that forward writes, on which its results do not depend."""
    graphs: list[torch.fx.GraphModule] = []

    def compiler(module: torch.fx.GraphModule, given: Any) -> Any:
        graphs.append(module)
        return metered([])(module, given)

    model, batch = made(convolutional)
    with pytest.warns(UserWarning, match="above the budget"):
        trained(model, [batch], compile_backend(0, compiler=compiler), [])
    assert len(graphs[1].graph.find_nodes(op="call_function", target=BATCH_NORM)) > 1


class ReadsStatistics(nn.Module):
    """Forward reads the running mean that normalization has just written."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.layer(x))) * self.norm.running_mean.view(1, -1, 1, 1)
        return torch.tanh(self.layer(y)).mean((2, 3))


@pytest.mark.filterwarnings("ignore:stowplan. a graph takes")
def test_running_statistics_are_read_as_they_were() -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(6, 4, 12, 12), torch.randint(4, (6,))) for _ in range(STEPS)]
    alike(ReadsStatistics(), batches, compile_backend(0))


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
    assert all(stats.peak <= 0.77 * stats.plain_peak for stats in backend.stats)
    with torch.no_grad():
        assert torch.equal(torch.compile(model.eval(), backend=backend)(x), model(x))
    assert len(backend.stats) == 2


def test_what_cannot_be_scheduled_has_pytorchs_own_cut_with_a_word() -> None:
    model, (x, _) = made(perceptron)
    backend = compile_backend("50%")
    with pytest.warns(UserWarning, match=r"cut as PyTorch does.*expected torch\.compile.*dynamic=False"):
        torch.compile(model, backend=backend, dynamic=True)(x).sum().backward()
    for loss, match in (
        (lambda x: x.masked_select(x > 0).sum(), "masked_select returns depends on values"),
        (
            lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)).sum(),
            "calls cond; expected an ATen operator",
        ),
    ):
        ours, theirs = (torch.eye(3).requires_grad_() for _ in range(2))
        with (
            torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
            pytest.warns(UserWarning, match=match),
        ):
            torch.compile(loss, backend=backend, dynamic=False, fullgraph=True)(ours).backward()
        loss(theirs).backward()
        assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]
    assert backend.stats == ()


def test_other_bits_and_odd_arguments_are_refused() -> None:
    with pytest.raises(
        BackendCompilerFailed, match=r"prod at .*test_compiling\.py:[0-9]+ .* has a backward pass along"
    ) as caught:
        torch.compile(lambda x: x.prod(1).sum(), backend=compile_backend(), dynamic=False)(
            torch.eye(3).requires_grad_()
        )
    assert isinstance(caught.value.inner_exception, GraphError)
    with pytest.raises(ScheduleError, match="'triton'; expected 'eager', 'inductor'"):
        compile_backend(compiler="triton")
    with pytest.raises(ValueError, match="expected bytes"):
        compile_backend("plenty")


def test_random_operators_are_drawn_once_whatever_pytorchs_own_cut_recomputes() -> None:
    model, batch = made(perceptron)
    with torch._functorch.config.patch(activation_memory_budget=0.1):
        alike(model, [batch] * STEPS, compile_backend())


def test_equal_random_operators_are_not_merged() -> None:
    def twice(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        h = model(x)
        return F.cross_entropy(F.dropout(h, 0.5) + F.dropout(h, 0.5), y)

    model, batch = made(perceptron)
    for budget in (None, "60%"):
        alike(model, [batch] * STEPS, compile_backend(budget), twice, twice)


def test_backward_runs_without_the_autocast_around_forward() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(16, 48)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.first(x).view(-1, 4, 3, 16).unbind(2)
            return F.scaled_dot_product_attention(q, k, v)

    torch.manual_seed(7)
    model, x = Attention(), torch.randn(8, 4, 16)
    found = []
    for one in (model, torch.compile(model, backend=compile_backend(), dynamic=False)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = one(x).float().square().mean()
        found.append(torch.autograd.grad(loss, tuple(model.parameters())))
    assert_same(*map(list, found))


def test_a_gradient_scaler_does_what_it_does_in_plain_pytorch() -> None:
    model, batch = made(perceptron)
    found = []
    for backend in ("eager", compile_backend("60%")):
        own, scaler = copy.deepcopy(model), torch.amp.GradScaler("cpu")
        optimizer, compiled = sgd(own), torch.compile(entropy, backend=backend, dynamic=False)
        torch.manual_seed(1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            scaler.scale(compiled(own, *batch)).backward()
            scaler.step(optimizer)
            scaler.update()
        found.append([*left(own, optimizer), torch.tensor(scaler.get_scale())])
    assert_same(*found)


def test_the_programs_own_checkpoints_stay() -> None:
    def checkpointed(model: Any, x: Tensor, y: Tensor) -> Tensor:
        for k in range(0, 18, 6):
            x = checkpoint(model[k : k + 6], x, use_reentrant=False)
        return F.cross_entropy(model[18:](x), y)

    model, batch = made(perceptron)
    kept = []
    for budget in (None, "90%"):
        backend = alike(model, [batch] * STEPS, compile_backend(budget), checkpointed, checkpointed)
        kept.append(backend.stats[0].kept)
    assert max(kept) < 0.5 * alike(model, [batch], compile_backend()).stats[0].kept


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++, which is not there")
def test_inductor_gives_the_bits_that_it_gives_without_a_budget() -> None:
    model, batch = made(lambda: (perceptron()[0][9:], perceptron()[1]))
    with torch._inductor.config.patch(fallback_random=True):
        backend = alike(model, [batch] * 2, compile_backend("85%", compiler="inductor"), beside="inductor")
    assert backend.stats[0].recomputed > 0


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++, which is not there")
def test_within_no_budget_of_inductors_is_more_kept_than_without() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.sin(torch.sigmoid(torch.sin(x)) @ x)
        return x.sum()

    x = torch.randn(32, 32, requires_grad=True)
    kept = []
    for budget in (None, "95%", "70%"):
        torch._dynamo.reset()
        backend = compile_backend(budget, compiler="inductor")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.compile(chain, backend=backend, dynamic=False)(x).backward()
        kept.append(backend.stats[0].kept)
    assert kept[0] >= max(kept[1:]) > 0
