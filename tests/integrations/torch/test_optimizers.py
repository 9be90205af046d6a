"""What the optimizer does in a scheduled step: each kind, hooks, clipping, accumulation, memory that is shared."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.torch import measure, schedule
from stowplan.torch.updates import ELEMENTWISE

from .steps import adam, assert_same, entropy, left, net, plain, same_as_plain, sgd


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_every_optimizer_updates_early_with_equal_bits(kind: Any) -> None:
    model, batches = net()
    options = {"lr": 0.01, "weight_decay": 0.1} if kind is not torch.optim.Rprop else {"lr": 0.01}
    training = same_as_plain(model, batches, entropy, lambda model: kind(model.parameters(), **options))
    assert training.stats.keeps_gradients is None
    assert model.first.weight.grad is None


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"amsgrad": True}])
def test_options_of_the_optimizer_keep_their_bits(options: dict[str, Any]) -> None:
    model, batches = net()
    same_as_plain(model, batches, entropy, lambda model: torch.optim.AdamW(model.parameters(), **options))


@pytest.mark.parametrize(
    "kind", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.SGD]
)
def test_a_loop_over_parameters_keeps_what_it_has_names_for(kind: Any) -> None:
    """The peak is in the update, of several parameters; one's intermediates are alive in the next one's update."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(88, 88, bias=False) for _ in range(6)])
    batches = [(torch.randn(2, 88),)] * 3
    same_as_plain(
        model, batches, lambda model, x: model(x).square().mean(), lambda m: kind(m.parameters(), 0.01)
    )


def test_clipping_waits_for_all_gradients() -> None:
    def clip(model: nn.Module) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    model, batches = net()
    twin, optimizer = copy.deepcopy(model), adam(model)
    expected = plain(twin, adam(twin), batches, entropy, clip)
    training = schedule(model, optimizer, entropy, before_update=lambda: clip(model))
    torch.manual_seed(1)
    found = [training.step(*batch) for batch in batches]
    assert_same([*found, *left(model, optimizer)], expected)
    assert training.stats.keeps_gradients == "before_update reads all gradients"


def test_a_gradient_that_the_step_does_not_use_counts_once() -> None:
    """One update takes all gradients there are: that of an unused parameter, left by the program, among them."""
    calls: list[int] = []
    results = []
    for way in (False, True):
        torch.manual_seed(0)
        used, unused = nn.Linear(4, 4), nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([*used.parameters(), unused], 0.1, momentum=0.9)
        optimizer.register_step_pre_hook(lambda *args: calls.append(1))
        unused.grad = torch.ones(3)
        loss = used(torch.ones(2, 4)).square().mean()
        if way:
            schedule(used, optimizer, lambda model, x: model(x).square().mean()).step(torch.ones(2, 4))
        else:
            loss.backward()
            optimizer.step()
        results.append([unused.detach(), *used.state_dict().values()])
        assert len(calls) == len(results)
    assert_same(*results)


class Parts(nn.Module):
    """Two layers whose weights are rows of one tensor, and a buffer between them."""

    def __init__(self, second: int) -> None:
        super().__init__()
        rows = torch.randn(32, 16)
        self.first, self.second = nn.Parameter(rows[:16]), nn.Parameter(rows[second : second + 16])
        self.register_buffer("between", torch.randn(16, 16))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.linear(F.linear(x, self.first).tanh(), self.between).tanh()
        return F.linear(hidden, self.second).square().mean()


KEPT = "parameters, gradients or the optimizer's state share memory, or other tensors share theirs"


@pytest.mark.parametrize(("second", "keeps"), [(16, None), (4, KEPT)])
def test_parameters_that_overlap_are_updated_together(second: int, keeps: str | None) -> None:
    torch.manual_seed(0)
    model, twin, batch = Parts(second), Parts(second), (torch.randn(4, 16),)
    twin.load_state_dict(model.state_dict())
    expected = plain(twin, sgd(twin), [batch] * 2, lambda model, x: model(x))
    optimizer = sgd(model)
    training = schedule(model, optimizer)
    torch.manual_seed(1)
    assert_same([*(training.step(*batch) for _ in range(2)), *left(model, optimizer)], expected)
    assert training.stats.keeps_gradients == keeps


@pytest.mark.parametrize("view", [Tensor.detach, lambda one: torch.from_numpy(one.detach().numpy())])
def test_a_buffer_that_becomes_a_view_of_a_parameter_is_read_before_the_update(
    view: Callable[[Tensor], Tensor],
) -> None:
    def trained_on(model: nn.Module, step: Callable[[], Any]) -> list[Tensor]:
        step()
        model.between = view(model.second)
        step()
        return left(model, optimizer)

    torch.manual_seed(0)
    model, batch = Parts(16), torch.randn(4, 16)
    twin = copy.deepcopy(model)
    optimizer = sgd(twin)
    expected = trained_on(twin, lambda: plain(twin, optimizer, [(batch,)], lambda model, x: model(x)))
    optimizer = sgd(model)
    training = schedule(model, optimizer)
    assert_same(trained_on(model, lambda: training.step(batch)), expected)
    assert [one.keeps_gradients for one in training.plans] == [None, KEPT]
    assert (
        training.plans[1].reason
        == "gradients, hooks, other parameters' state or memory that is shared have changed"
    )


def test_gradients_add_up_over_micro_batches() -> None:
    model, batches = net()
    twin, optimizer = copy.deepcopy(model), sgd(model)
    other = sgd(twin)
    training = schedule(model, optimizer, entropy)
    torch.manual_seed(1)
    expected, found = [], []
    for _ in range(2):
        for batch in batches:
            loss = entropy(twin, *batch)
            loss.backward()
            expected.append(loss.detach())
        other.step()
        other.zero_grad()
    expected += left(twin, other)
    torch.manual_seed(1)
    peaks = []
    for _ in range(2):
        for batch in batches[:-1]:
            measured = measure(training.accumulate, *batch)
            assert measured.peak + training.stats.resident <= training.stats.peak
            peaks.append(training.stats.peak)
            found.append(measured.result)
        found.append(training.step(*batches[-1]))
    assert_same([*found, *left(model, optimizer)], expected)
    assert max(peaks) <= training.plan(*batches[0]).plain_peak + sum(one.nbytes for one in model.parameters())
    assert len(training.plans) == 4  # of first and later micro-batches, of steps with gradients and without
