"""Steps that would be wrong or above their budget without a word: refused before anything has run, or counted."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.distributions import Distribution
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)
from torch.profiler import ProfilerActivity, profile

from stowplan.errors import BudgetError, GraphError, ScheduleError
from stowplan.torch import ScheduledTraining, compile_backend, schedule
from stowplan.torch.eager import DECOMPOSITIONS

from .steps import asserting, same_as_plain, stepped


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1)


class Transposed(nn.Module):
    """Batch normalization of a transposed tensor, whose strides PyTorch traces wrongly."""

    def __init__(self, flat: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.flat = flat

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        normal = self.norm(x.flatten(0, 1)) if self.flat else self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.last(normal.view_as(x)).square().mean()


def test_layouts_that_pytorch_traces_wrongly_are_those_of_the_program() -> None:
    torch.manual_seed(0)
    for model in (Transposed(), Transposed(flat=True)):
        same_as_plain(model, [(torch.randn(8, 4, 16),)] * 3, lambda model, x: model(x))


def test_layouts_that_nobody_knows_of_are_refused_before_anything_has_run(monkeypatch) -> None:
    for name in ("_native_batch_norm_legit_functional", "native_batch_norm_backward"):
        monkeypatch.delitem(DECOMPOSITIONS, getattr(torch.ops.aten, name).default)
    torch.manual_seed(0)
    model, x = Transposed(), torch.randn(8, 4, 16)
    before, drawn = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with pytest.raises(GraphError, match=r"has strides \(64, 4, 1\).*as of \(rows, channels\)"):
        schedule(model, sgd(model)).step(x)
    with pytest.raises(BackendCompilerFailed, match="has strides"):
        torch.compile(model, backend=compile_backend(), dynamic=False)(x)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())


def test_layouts_of_operators_that_fail_on_zeros_and_ones_are_refused() -> None:
    lengths = torch.tensor([2, 3, 3])

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return torch.segment_reduce(model(x), "sum", lengths=lengths).square().mean()

    def turned(model: nn.Module, x: Tensor) -> Tensor:
        return torch.segment_reduce(model(x).t(), "sum", lengths=lengths).square().mean()

    torch.manual_seed(0)
    model, x = nn.Linear(6, 8), torch.randn(8, 6)
    same_as_plain(model, [(x,)] * 3, loss)
    with pytest.raises(GraphError, match="segment_reduce fails on zeros and on ones"):
        schedule(model, sgd(model), turned).step(x)


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


compiled = torch.compile(lambda x: x.sin(), backend="eager")


@pytest.mark.parametrize(("function", "name"), [(scripted, "scripted"), (compiled, "<lambda>")])
def test_functions_that_are_scripted_or_compiled_are_refused(
    function: Callable[[Tensor], Tensor], name: str
) -> None:
    model = nn.Linear(4, 4)
    training = schedule(model, sgd(model), lambda model, x: function(model(x)).sum())
    with pytest.raises(GraphError, match=f"the step calls {name}, scripted or compiled"):
        training.step(torch.ones(2, 4))


def test_a_replaced_function_that_pytorch_would_apply_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    training = schedule(model, sgd(model), lambda model, x: model(x).sum())
    training.step(torch.ones(2, 4))
    original = F.relu
    monkeypatch.setattr(F, "relu", lambda *args, **kwargs: original(*args, **kwargs) * 3)
    before = model[0].weight.clone()
    with pytest.raises(GraphError, match=r"torch\.nn\.functional\.relu was replaced"):
        training.step(torch.ones(2, 4))
    with pytest.raises(BackendCompilerFailed, match="relu was replaced"):
        torch.compile(model, backend=compile_backend(), dynamic=False)(torch.ones(2, 4))
    assert torch.equal(model[0].weight, before)


def alive(model: nn.Module, optimizer: torch.optim.Optimizer, *batch: Tensor) -> int:
    tensors = [*model.parameters(), *(one.grad for one in model.parameters()), *batch]
    tensors += [one for state in optimizer.state.values() for one in state.values()]
    found = {
        one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors if one is not None
    }
    return sum(found.values())


def test_state_counts_wherever_it_is() -> None:
    model = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
    optimizer, x = torch.optim.Adam(model.parameters()), torch.randn(4, 64)

    def loss(model: Any, x: Tensor, number: int) -> Tensor:
        return model[number](x).square().mean()

    training = schedule(model, optimizer, loss)
    for number in (0, 1, 2, 0):  # the last one by a plan of when there was less state
        training.step(x, number)
        assert training.stats is not None
        assert alive(model, optimizer, x) <= training.stats.peak
    training.accumulate(x, 1)
    assert alive(model, optimizer, x) <= training.stats.peak
    bound = alive(model, optimizer, x)
    with pytest.raises(BudgetError) as caught:
        schedule(model, optimizer, loss, budget=bound - 1).accumulate(x, 1)
    assert caught.value.least > bound


def test_a_share_becomes_bytes_once() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
    training = schedule(model, sgd(model), lambda model, x: model(x).square().mean(), budget="70%")
    peaks = []
    for count in (512, 300, 64):  # a short last batch has as many bytes
        training.step(torch.randn(count, 64))
        assert training.stats is not None
        peaks.append(training.stats.peak)
    assert max(peaks) == peaks[0] <= 0.7 * training.plans[0].plain_peak


class Dropouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.dropout(F.gelu(layer(x)), 0.1)
        return x.square().mean()


def test_states_of_generators_count_by_a_meter_of_pytorchs() -> None:
    torch.manual_seed(0)
    model, x = Dropouts(), torch.randn(64, 128)
    with pytest.raises(BudgetError) as caught:
        schedule(model, sgd(model), budget=1).plan(x)
    training = schedule(model, sgd(model), budget=caught.value.least)
    training.step(x)
    stats = training.stats
    assert stats is not None
    assert stats.peak <= caught.value.least
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        training.step(x)
    live = most = 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            most = max(most, live)
    assert stats.resident + most <= stats.peak + 64  # what an operator takes and frees within itself
    assert any("random_state" in str(node.target) for node in training._latest.run.graph.nodes)  # type: ignore[union-attr]


def masked(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)[x[:, 0] > 0].sum()


def printing(model: nn.Module, x: Tensor) -> Tensor:
    print("step")
    return model(x).sum()


class Over(nn.Module):
    """A layer over another."""

    def __init__(self, first: nn.Module, last: nn.Module | None = None) -> None:
        super().__init__()
        self.first, self.last = first, last or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(self.first(x))
        return (y[0] if isinstance(y, tuple) else y).square().mean()


def drawing(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).sum() * random.random()


def connected(model: nn.Module, x: Tensor) -> Tensor:
    lengths = torch.full((2,), 3)
    return F.ctc_loss(model(x).log_softmax(-1), torch.ones(2, 3, dtype=torch.long), lengths + 2, lengths)


@pytest.mark.parametrize(
    ("model", "loss", "batch", "way"),
    [
        (
            Over(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)),
            None,
            torch.ones(2, 4),
            "expected a momentum",
        ),
        (Over(nn.Embedding(9, 4, max_norm=1.0)), None, torch.ones(3, dtype=torch.long), "max_norm=None"),
        (
            Over(nn.Embedding(9, 4, sparse=True)),
            None,
            torch.ones(3, dtype=torch.long),
            "expected sparse=False",
        ),
        (Over(nn.LSTM(4, 4)), None, torch.ones(3, 2, 4), r"oneDNN's LSTM.*mkldnn\.flags\(enabled=False\)"),
        (nn.Linear(4, 6), connected, torch.ones(5, 2, 4), "ctc_loss has a shape that depends.*another loss"),
    ],
)
def test_refusals_of_layers_name_the_reason(model: nn.Module, loss: Any, batch: Tensor, way: str) -> None:
    with pytest.raises(GraphError, match=rf" at .*test_refusals\.py:[0-9]+ \w+[: ].*{way}"):
        schedule(model, sgd(model), loss).step(batch)


def test_pythons_random_is_refused() -> None:  # from 2.14 on without the line
    with pytest.raises(GraphError, match="draws from Python's random"):
        schedule(model := nn.Linear(4, 4), sgd(model), drawing).step(torch.ones(2, 4))


@pytest.mark.parametrize(
    ("loss", "way"),
    [
        (masked, r"masked; expected .* by weights in the place of a mask"),
        (asserting, "asserting checks values.*expected it after the step"),
        (printing, "printing .*set up|printing .*sets up is there after one plain call"),
    ],
)
def test_refusals_name_the_line_and_the_way_round(loss: Any, way: str) -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(GraphError, match=rf" at .*\.py:[0-9]+ {way}"):
        schedule(model, sgd(model), loss).step(torch.ones(2, 4))


def test_odd_arguments_are_one_line_and_change_nothing() -> None:
    model, x = nn.Linear(4, 1), torch.ones(2, 4)
    optimizer = sgd(model)
    for budget in (0.5, "150%", float("nan")):
        with pytest.raises(ValueError, match="; expected "):
            schedule(model, optimizer, budget=budget)  # type: ignore[arg-type]
    for options, match in (
        ({"model": None}, "model is None"),
        ({"loss": 5}, "loss is 5"),
        ({"before_update": 5}, "5"),
    ):
        with pytest.raises(ScheduleError, match=match):
            schedule(**{"model": model, "optimizer": optimizer, **options})  # type: ignore[arg-type]
    training = schedule(model, optimizer, lambda model, x: model(x).sum(), budget=1)
    before = model.weight.clone()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copied(training)
    with pytest.raises(TypeError, match="unexpected keyword"):
        training.step(x, y=x)  # type: ignore[call-arg]
    with pytest.raises(BudgetError) as caught:
        training.step(x)
    assert caught.value.__cause__ is None
    assert "reporting a bug" not in "".join(map(str, (caught.value, caught.value.__context__ or "")))[:400]
    assert torch.equal(model.weight, before)


def test_an_interrupt_while_a_step_is_planned_leaves_all_as_it_was() -> None:
    model, x = nn.Linear(4, 1), torch.ones(2, 4)

    def interrupted(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).sum()

    training: ScheduledTraining = schedule(model, sgd(model), interrupted)

    def interrupts(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    plan, checks = training._planner.plan, Distribution._validate_args
    object.__setattr__(training._planner, "plan", interrupts)
    with pytest.raises(KeyboardInterrupt):
        training.step(x)
    assert Distribution._validate_args == checks
    object.__setattr__(training._planner, "plan", plan)
    training.step(x)
    assert training.plain_steps == 0


class Recurrent(nn.Module):
    """Keeps its state between steps."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.cell, self.h, self.detached = nn.RNNCell(4, 4), torch.zeros(2, 4), detached

    def forward(self, x: Tensor) -> Tensor:
        self.h = self.cell(x, self.h.detach() if self.detached else self.h)
        return self.h.square().mean()


def test_state_that_is_kept_with_its_graph_is_refused_where_plain_pytorch_raises() -> None:
    x = torch.ones(2, 4)
    same_as_plain(Recurrent(True), [(x,)] * 3, lambda model, x: model(x))
    plain, model = Recurrent(False), Recurrent(False)
    plain(x).backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        plain(x).backward()
    training = schedule(model, sgd(model))
    training.step(x)
    model.h.detach_()
    training.step(x)
    before = model.cell.weight_hh.clone()
    with pytest.raises(GraphError, match="computed from others that require gradients; expected it detached"):
        training.step(x)
    assert torch.equal(model.cell.weight_hh, before)


class Keeps(nn.Module):
    """Keeps tensors with their graph, and reads one of them where no gradient of the loss goes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.total, self.kept = nn.Linear(4, 4), torch.zeros(()), list[Tensor]()

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).tanh()
        loss = y.square().mean()
        self.total = self.total + loss
        self.kept = [y, y[0], y.t(), self.layer.weight[0], loss, y.detach(), y.detach()[0]]
        return loss


def test_what_is_kept_with_its_graph_and_read_without_a_gradient_is_as_in_plain_pytorch() -> None:
    model, x = Keeps(), torch.randn(2, 4)
    twin = copy.deepcopy(model)
    training = schedule(model, sgd(model))
    optimizer = sgd(twin)
    for _ in range(3):
        assert torch.equal(training.step(x), stepped(twin, optimizer, (x,), lambda model, x: model(x)))
        for one, other in zip((model.total, *model.kept), (twin.total, *twin.kept), strict=True):
            assert torch.equal(one, other)
            assert one.requires_grad == other.requires_grad
            assert not one.requires_grad or one._is_view() == other._is_view()
        assert model.kept[5].data_ptr() == model.kept[0].data_ptr()
    assert training.stats is not None
    assert training.stats.steps == 3
    assert len(training.plans) == 2
    with pytest.raises(RuntimeError, match="has run backward"):
        model.kept[0].sum().backward()
    history = model.kept[6]
    schedule(model, sgd(model), lambda model, x: model(x) + history.sum()).step(x)
