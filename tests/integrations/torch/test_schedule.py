"""Steps within a budget: the bits of plain PyTorch's over several steps, in the bytes that were predicted."""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stowplan import TorchPool
from stowplan.errors import BudgetError, GraphError, ScheduleError
from stowplan.scheduling import Schedule, Way, check, simulate
from stowplan.scheduling.orders import starting_points
from stowplan.scheduling.schedule import choices
from stowplan.scheduling.unsafe_recomputation import without_hazards
from stowplan.torch import graph, measure, schedule, trace_training
from stowplan.torch.live import live_peak
from stowplan.torch.rewriting import mark_repeatable, scheduled

from .nets import NETS, loss, make
from .steps import (
    STEPS,
    Net,
    adam,
    assert_same,
    entropy,
    left,
    loss_of,
    net,
    plain,
    same_as_plain,
    sgd,
    stepped,
)

TRAINED = [name for name in NETS if name != "decoder"]


@pytest.mark.parametrize("name", TRAINED)
def test_bits_and_bytes_at_several_budgets(name: str) -> None:
    for budget in (None, "70%"):
        model, inputs = make(name)
        try:
            plain_peak = schedule(model, sgd(model), loss_of, budget=budget).plan(*inputs).plain_peak
            given, bound = budget, (0.7 if budget else 1) * plain_peak
        except BudgetError as error:
            given = bound = error.least
        stats = same_as_plain(model, [inputs] * STEPS, budget=given).stats
        assert stats.peak <= bound
        assert stats.steps == STEPS


@pytest.mark.parametrize("name", ["encoder", "resnet18", "densenet", "recurrent"])
def test_any_schedule_runs_in_the_bytes_simulated(name: str) -> None:
    model, inputs = make(name)
    traced = trace_training(model, inputs, loss)
    mark_repeatable(traced)
    step = graph(traced)
    step = step.with_seconds([0.01] * len(step))
    before = copy.deepcopy(model.state_dict())
    draw = random.Random(0)
    expected: list[Tensor] | None = None
    for order in (np.arange(len(step)), *starting_points(step)):
        for share in (0.0, 0.3, 1.0):
            way = np.zeros(step.values, dtype=np.int64)
            for storage, ways in choices(step).items():
                other = [one for one in ways if one == Way.DROPPED]
                if other and draw.random() < share:
                    way[storage] = draw.choice(other)
            one = without_hazards(step, Schedule(order, way[step.storage]))
            run = scheduled(traced, step, one)
            model.load_state_dict(before)
            torch.manual_seed(1)
            with torch.no_grad():
                measured = measure(run, *inputs)
            predicted = simulate(step, one).peak
            assert check(step, one) == predicted
            assert 0.9 * predicted <= measured.peak <= predicted
            assert measured.peak == live_peak(run.graph)
            leaves = torch.utils._pytree.tree_leaves(measured.result)
            found = [*leaves, *copy.deepcopy(model.state_dict()).values(), torch.get_rng_state()]
            expected = expected or found
            assert_same(found, expected)


@pytest.mark.parametrize("cast", ["parameters", "autocast"])
def test_training_in_bfloat16(cast: str) -> None:
    def in_bfloat16(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if cast == "parameters":
            return entropy(model, x.bfloat16(), y)
        with torch.autocast("cpu", torch.bfloat16):
            return entropy(model, x, y)

    model, batches = net()
    if cast == "parameters":
        model.bfloat16()
    same_as_plain(model, batches, in_bfloat16, adam, budget="95%")


def test_autocast_around_the_step_is_refused() -> None:
    model, batches = net()
    training = schedule(model, sgd(model), entropy)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ScheduleError, match="inside the loss"):
        training.step(*batches[0])


def test_a_budget_below_the_floor_names_it_and_its_operator() -> None:
    model, inputs = make("densenet")
    training = schedule(model, sgd(model), loss_of, budget="10 KiB")
    with pytest.raises(BudgetError, match=r"10.0 KiB is below .* the least is .* where \w+ runs") as caught:
        training.plan(*inputs)
    fitting = schedule(model, sgd(model), loss_of, budget=caught.value.least)
    assert fitting.plan(*inputs).peak <= caught.value.least


def test_what_the_loss_raises_is_named() -> None:
    def raises(model: nn.Module, x: Tensor) -> Tensor:
        raise ValueError("two rows")

    model = nn.Linear(3, 3)
    with pytest.raises(GraphError, match=r"at .*test_schedule\.py:[0-9]+ raises \(.*ValueError"):
        schedule(model, sgd(model), raises).step(torch.ones(2, 3))


@pytest.mark.parametrize("budget", [None, 100])
def test_a_training_that_nobody_has_is_freed_with_its_model(budget: int | None) -> None:
    def run() -> list[weakref.ref[Any]]:
        model = Net()
        optimizer = adam(model)
        training = schedule(model, optimizer, lambda model, x: model(x).sum(), budget=budget)
        with pytest.raises(BudgetError) if budget else contextlib.nullcontext():
            training.step(torch.randn(5, 24))
        return [weakref.ref(one) for one in (training, model, optimizer, *model.parameters())]

    found = run()
    gc.collect()
    assert [one() for one in found] == [None] * len(found)


def test_a_step_that_changes_every_time_runs_plainly_in_the_end() -> None:
    class Counts(Net):
        calls = 0.0

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * (1 + self.calls)

    torch.manual_seed(0)
    model, batch = Counts(), net()[1][0]
    twin, optimizer = copy.deepcopy(model), sgd(model)
    other, training = sgd(twin), schedule(model, optimizer, entropy)
    with torch._dynamo.config.patch(recompile_limit=2):
        for k in range(5):
            model.calls = twin.calls = 0.5 * k
            torch.manual_seed(k)
            if k == 2:
                with pytest.warns(UserWarning, match=r"plain PyTorch.*calls"):
                    found = training.step(*batch)
            else:
                found = training.step(*batch)
            torch.manual_seed(k)
            assert torch.equal(found, stepped(twin, other, batch, entropy))
        assert_same(left(model, optimizer)[:-1], left(twin, other)[:-1])
        assert (training.plain_steps, len(training.plans)) == (3, 2)
        assert "calls" in training.plans[1].reason
        model.calls = 0.5
        training.step(*batch)  # there is a plan of it
        assert training.plain_steps == 3


def test_a_step_without_a_plan_raises_if_it_is_to() -> None:
    model, batch = net()[0], net()[1][0]
    optimizer = sgd(model)
    strict = schedule(model, optimizer, lambda model, x, y: entropy(model, x, y) * model.scale, strict=True)
    with torch._dynamo.config.patch(recompile_limit=2):
        for k in range(2):
            model.scale = 0.5 + k
            strict.step(*batch)
        model.scale, before = 7.5, left(model, optimizer)
        with pytest.raises(ScheduleError, match=r"has no plan: .*scale"):
            strict.step(*batch)
    assert_same(left(model, optimizer), before)


def test_what_is_no_budget_pool_or_optimizer_that_is_served_is_refused() -> None:
    model, _ = net()
    with pytest.raises(ScheduleError, match=r"LBFGS; expected one of torch\.optim"):
        schedule(model, torch.optim.LBFGS(model.parameters()), entropy)
    with pytest.raises(ValueError, match="expected bytes"):
        schedule(model, sgd(model), entropy, budget="2 apples")
    with pytest.raises(ScheduleError, match="pool is 3; expected a stowplan"):
        schedule(model, sgd(model), entropy, pool=3)
    with pytest.raises(ScheduleError, match="swap is gone; use a smaller budget"):
        schedule(model, sgd(model), entropy, swap=True)


@pytest.mark.parametrize("name", TRAINED[:3])
def test_a_pool_serves_the_steps_from_one_arena(name: str) -> None:
    model, inputs = make(name)
    batches = [inputs] * 8
    twin = copy.deepcopy(model)
    expected = plain(twin, sgd(twin), batches)
    pool, optimizer = TorchPool(warmup=0, small=1), sgd(model)
    training = schedule(model, optimizer, loss_of, budget=None, pool=pool)
    torch.manual_seed(1)
    losses = []
    for batch in batches:
        losses.append(training.step(*batch))
        pool.wait()
    assert_same([*losses, *left(model, optimizer)], expected)
    assert pool.stats.replayed > pool.stats.requests / 2
    assert pool.stats.arena_bytes > 0
