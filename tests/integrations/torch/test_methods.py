"""Programs that change a class between steps, and forward passes with effects that no graph has."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stowplan.errors import BudgetError, GraphError, ScheduleError
from stowplan.torch import measure, schedule

from .steps import same_as_plain, sgd, stepped


def squares(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mean()


def bits(tensors: Any) -> list[bytes]:
    return [one.detach().numpy().tobytes() for one in tensors]


class Scale:
    """What a model keeps, and no module."""

    def __call__(self, x: Tensor) -> Tensor:
        return x * 2


def make(seed: int = 0) -> Any:
    """A model of a class of its own, with methods of each kind, and of a base of its own."""
    torch.manual_seed(seed)

    def block(self: Any, x: Tensor) -> Tensor:
        return self.first(x).tanh()

    class Base(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)
            self.scale = type("Scale", (Scale,), {})()

        def inherited(self, x: Tensor) -> Tensor:
            return x.sin()

    class Net(Base):
        @classmethod
        def shifted(cls, x: Tensor) -> Tensor:
            return x + 1

        def forward(self, x: Tensor) -> Tensor:
            return self.scale(self.second(self.inherited(self.shifted(self.block(x)))))

    Net.block = block
    return Net()


def other_code(model: Any) -> None:
    model.block.__func__.__code__ = (lambda self, x: self.first(x).relu()).__code__


PATCHES: dict[str, Callable[[Any], None]] = {
    "method": lambda model: setattr(type(model), "block", lambda self, x: self.first(x).relu()),
    "class method": lambda model: setattr(type(model), "shifted", classmethod(lambda cls, x: x + 2)),
    "call": lambda model: setattr(type(model), "__call__", lambda self, x: nn.Module.__call__(self, x) * 2),
    "base": lambda model: setattr(type(model).__base__, "inherited", lambda self, x: x.cos()),
    "code": other_code,
    "object": lambda model: setattr(type(model.scale), "__call__", lambda self, x: x * 3),
}


def trained(patch: Callable[[Any], None], scheduled: bool) -> tuple[list[Any], Any]:
    torch._dynamo.reset()
    model = make()
    optimizer = sgd(model)
    training = schedule(model, optimizer, squares) if scheduled else None
    found = []
    for step in range(4):
        if step == 2:
            patch(model)
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        loss = stepped(model, optimizer, (x,), squares) if training is None else training.step(x)
        found.append(bits([loss, *model.parameters()]))
    return found, training


@pytest.mark.parametrize("name", PATCHES)
def test_another_method_of_a_class_makes_another_plan(name: str) -> None:
    expected, _ = trained(PATCHES[name], scheduled=False)
    found, training = trained(PATCHES[name], scheduled=True)
    assert found == expected
    assert len(training.plans) == 2


class Table:
    """No module, and no module keeps it."""

    def __getitem__(self, x: Tensor) -> Tensor:
        return x * 2


class Below(Table):
    pass


@pytest.mark.parametrize(("kind", "changed"), [(Table, Table), (Below, Table), (Below, Below)])
def test_another_method_of_a_class_that_the_loss_uses(
    kind: type, changed: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kind()
    model = nn.Linear(4, 2)
    training = schedule(
        model, torch.optim.SGD(model.parameters(), 0.1), lambda model, x: table[model(x)].square().mean()
    )
    x = torch.ones(3, 4)
    for _ in range(2):
        training.step(x)
    monkeypatch.setattr(changed, "__getitem__", lambda self, x: x * 3, raising=False)
    expected = table[model(x)].square().mean().detach()
    assert torch.equal(training.step(x), expected)
    assert len(training.plans) == 2


def test_another_method_of_tensors_makes_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def patch(_: Any) -> None:
        monkeypatch.setattr(torch.Tensor, "sin", lambda x: torch.cos(x))

    expected, _ = trained(patch, scheduled=False)
    monkeypatch.undo()
    found, training = trained(patch, scheduled=True)
    assert found == expected
    assert len(training.plans) == 2


def hangs_a_hook(model: Any, optimizer: Any, x: Tensor) -> Tensor:
    model.first.weight.register_hook(lambda gradient: gradient * 2)
    return model(x).square().mean()


def reads_state(model: Any, optimizer: Any, x: Tensor) -> Tensor:
    momenta = [optimizer.state[one].get("momentum_buffer") for one in model.parameters()]
    return model(x).square().mean() + sum(one.sum() for one in momenta if one is not None)


def writes_options(model: Any, optimizer: Any, x: Tensor) -> Tensor:
    optimizer.param_groups[0]["lr"] = 0.5
    return model(x).square().mean()


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (hangs_a_hook, "forward hangs a hook on the gradient of a tensor"),
        (reads_state, "forward writes on the optimizer's state or options"),
        (writes_options, "forward writes on the optimizer's state or options"),
    ],
)
def test_effects_that_come_after_the_update_are_refused(loss: Callable[..., Tensor], reason: str) -> None:
    torch._dynamo.reset()
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    before = copy.deepcopy([*model.parameters()])
    training = schedule(model, optimizer, lambda model, x: loss(model, optimizer, x))
    with pytest.raises(GraphError, match=reason):
        training.step(torch.ones(6, 4))
    assert bits(before) == bits([*model.parameters()])
    assert not model.first.weight._backward_hooks


@pytest.mark.parametrize("made", [torch.compile, torch.jit.script])
def test_parts_that_are_compiled_are_refused(made: Callable[[nn.Module], nn.Module]) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(made(nn.Linear(4, 4)), nn.Tanh())
    training = schedule(model, torch.optim.SGD(model.parameters(), 0.1), lambda model, x: model(x).mean())
    with pytest.raises(GraphError, match="0 is compiled or a script"):
        training.step(torch.ones(6, 4))


def test_operators_of_others_run_once() -> None:
    @torch.library.custom_op("stowplan_test::noisy", mutates_args=())
    def noisy(x: Tensor) -> Tensor:
        return x + torch.rand_like(x)

    noisy.register_fake(torch.empty_like)
    noisy.register_autograd(lambda context, gradient: gradient)
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))

    def loss(model: Any, x: Tensor) -> Tensor:
        return model[2:](noisy(model[1](noisy(model[0](x))))).square().mean()

    batch = (torch.ones(256, 4),)
    peak = schedule(model, sgd(model), loss).plan(*batch).peak
    for share in (1.0, 0.9, 0.8):
        try:
            same_as_plain(model, [batch] * 2, loss, budget=int(peak * share))
        except BudgetError:
            break
    assert share < 1.0


def test_classes_out_of_range_raise_as_in_plain_pytorch() -> None:
    model = nn.Linear(4, 3)
    before = bits(model.parameters())
    training = schedule(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        lambda model, x, y: (model(x) - nn.functional.one_hot(y, 3)).square().mean(),
    )
    for wrong, reason in ((3, "smaller than num_classes"), (-1, "non-negative")):
        with pytest.raises(RuntimeError, match=reason):
            training.step(torch.ones(1, 4), torch.tensor([wrong]))
    assert bits(model.parameters()) == before
    training.step(torch.ones(1, 4), torch.tensor([2]))


def test_distributions_check_their_values_afterwards() -> None:
    # A torch.compile before turns it off for good.
    torch.distributions.Distribution.set_default_validate_args(True)
    training = schedule(*(lambda model: (model, torch.optim.SGD(model.parameters(), 0.1)))(nn.Linear(4, 1)))
    training.step(torch.ones(1, 4))
    with pytest.raises(ValueError, match="Expected parameter scale"):
        torch.distributions.Normal(0.0, -1.0)


@pytest.mark.parametrize("make_one", [lambda p: torch.optim.RAdam(p), lambda p: torch.optim.ASGD(p, t0=2)])
def test_updates_that_take_more_later_keep_to_the_budget(make_one: Callable[[Any], Any]) -> None:
    model = nn.Linear(300, 300)
    training = schedule(model, make_one(model.parameters()), lambda model, x: model(x).square().mean())
    x = torch.ones(2, 300)
    for _ in range(8):
        training.step(x)
    assert measure(training.step, x).peak <= training.stats.peak - training.stats.resident


def test_anomalies_and_stances_run_plainly() -> None:
    model = nn.Linear(4, 1)
    training = schedule(model, torch.optim.SGD(model.parameters(), 0.1), strict=True)
    x = torch.ones(1, 4)
    with torch.autograd.set_detect_anomaly(True), pytest.raises(ScheduleError, match="anomalies are looked"):
        training.step(x)
    with torch.compiler.set_stance("force_eager"), pytest.raises(ScheduleError, match="set_stance"):
        training.step(x)


def test_a_callback_that_sees_what_forward_writes_warns() -> None:
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x)

    model = Counting(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    training = schedule(model, optimizer, before_update=lambda: None)
    with pytest.warns(UserWarning, match="forward writes on Python objects"):
        training.step(torch.ones(1, 4))
