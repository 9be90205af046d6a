"""Steps within a budget: the bits of plain PyTorch's over several steps, in the bytes that were predicted."""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; expected: make torch-test")

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan import TorchPool
from stowplan.errors import BudgetError, GraphError, ScheduleError
from stowplan.scheduling import Schedule, Way, check, simulate
from stowplan.scheduling.hazards import without_hazards
from stowplan.scheduling.orders import starting_points
from stowplan.scheduling.schedule import choices
from stowplan.torch import ScheduledTraining, graph, measure, schedule, trace_training
from stowplan.torch.evictions import EVICT, RATES, Evict
from stowplan.torch.live import live_peak
from stowplan.torch.rewriting import mark_repeatable, scheduled
from stowplan.torch.updates import ELEMENTWISE

from .nets import NETS, loss, make
from .steps import STEPS, adam, assert_same, left, loss_of, plain, sgd, trained

TRAINED = [name for name in NETS if name != "decoder"]

Make = Callable[[nn.Module], torch.optim.Optimizer]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", TRAINED)
def test_bits_and_bytes_at_several_budgets(name: str) -> None:
    model, inputs = make(name)
    twin = copy.deepcopy(model)
    batches = [inputs] * STEPS
    expected = plain(twin, sgd(twin), batches)
    for budget in (None, "70%"):
        own, _ = make(name)
        optimizer = sgd(own)
        training, bound = within(own, optimizer, budget, inputs)
        assert training.plan(*inputs).peak <= bound
        assert_same(trained(own, optimizer, training, batches), expected)
        assert training.stats is not None
        assert training.stats.steps == STEPS


def within(
    model: nn.Module, optimizer: torch.optim.Optimizer, budget: str | None, inputs: tuple[Any, ...]
) -> tuple[ScheduledTraining, float]:
    """Return training within a budget, or at the least peak that there is, and the bytes that bound it."""
    training = schedule(model, optimizer, loss_of, budget=budget)
    try:
        stats = training.plan(*inputs)
    except BudgetError as error:
        return schedule(model, optimizer, loss_of, budget=error.least), error.least
    return training, stats.peak if budget is None else float(budget[:-1]) / 100 * stats.plain_peak


def test_what_draws_random_numbers_runs_again() -> None:
    model, inputs = make("encoder")
    twin = copy.deepcopy(model)
    expected = plain(twin, sgd(twin), [inputs] * STEPS)
    optimizer = sgd(model)
    training = schedule(model, optimizer, loss_of, budget="70%")
    training.plan(*inputs)
    assert training.solution is not None
    step = training._latest.run.graph  # type: ignore[union-attr]
    assert any("exchange" in node.name for node in step.nodes)
    assert_same(trained(model, optimizer, training, [inputs] * STEPS), expected)


@pytest.mark.parametrize("name", ["encoder", "resnet18", "densenet", "recurrent"])
def test_any_schedule_runs_in_the_bytes_simulated(name: str) -> None:
    model, inputs = make(name)
    traced = trace_training(model, inputs, loss)
    mark_repeatable(traced)
    traced.add_module(EVICT, Evict(None))
    step = graph(traced)
    step = step.with_seconds([0.01] * len(step))
    before = copy.deepcopy(model.state_dict())
    draw = random.Random(0)
    expected: list[Tensor] | None = None
    swaps = 0
    for order in (np.arange(len(step)), *starting_points(step)):
        for share in (0.0, 0.3, 1.0):
            way = np.zeros(step.values, dtype=np.int64)
            for storage, ways in choices(step).items():
                other = [one for one in ways if one not in (Way.KEPT, Way.PACKED)]
                if other and draw.random() < share:
                    way[storage] = draw.choice(other)
            one = without_hazards(step, Schedule(order, way[step.storage]))
            run = scheduled(traced, step, one)
            model.load_state_dict(before)
            torch.manual_seed(1)
            with torch.no_grad():
                measured = measure(run, *inputs)
            outcome = simulate(step, one, RATES)
            predicted, swaps = outcome.peak, swaps + len(outcome.swapped)
            assert check(step, one, RATES) == predicted
            assert 0.9 * predicted <= measured.peak <= predicted
            assert measured.peak == live_peak(run.graph)
            leaves = torch.utils._pytree.tree_leaves(measured.result)
            found = [*leaves, *copy.deepcopy(model.state_dict()).values(), torch.get_rng_state()]
            expected = expected or found
            assert_same(found, expected)
    assert swaps > 10


class Net(nn.Module):
    """Two layers of equal, tied weights; one that is frozen, one that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 24), nn.Linear(24, 24)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(24, 24).requires_grad_(False)
        self.unused = nn.Linear(24, 24)
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second, self.frozen):
            x = F.relu(layer(x), inplace=True)
        return self.head(F.dropout(x, 0.3, self.training))


def net() -> tuple[Net, list[tuple[Any, ...]]]:
    torch.manual_seed(0)
    model = Net()
    return model, [(torch.randn(64, 24), torch.randint(4, (64,))) for _ in range(4)]


def entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_every_optimizer_updates_early_with_equal_bits(kind: Any) -> None:
    model, batches = net()
    twin = copy.deepcopy(model)
    options = {"lr": 0.01, "weight_decay": 0.1} if kind is not torch.optim.Rprop else {"lr": 0.01}
    expected = plain(twin, kind(twin.parameters(), **options), batches, entropy)
    optimizer = kind(model.parameters(), **options)
    training = schedule(model, optimizer, entropy)
    assert_same(trained(model, optimizer, training, batches), expected)
    assert training.stats is not None
    assert training.stats.keeps_gradients is None
    assert model.first.weight.grad is None


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"amsgrad": True}])
def test_options_of_the_optimizer_keep_their_bits(options: dict[str, Any]) -> None:
    model, batches = net()
    twin = copy.deepcopy(model)
    expected = plain(twin, torch.optim.AdamW(twin.parameters(), **options), batches, entropy)
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    assert_same(trained(model, optimizer, schedule(model, optimizer, entropy), batches), expected)


def test_groups_learning_rates_and_a_state_that_is_loaded() -> None:
    def groups(model: Net) -> torch.optim.Optimizer:
        rest = [one for part in (model.second, model.unused, model.head) for one in part.parameters()]
        tied = {id(one) for one in model.first.parameters()}
        return torch.optim.SGD(
            [
                {"params": list(model.first.parameters()), "lr": 0.5},
                {"params": [one for one in rest if id(one) not in tied]},
            ],
            lr=0.1,
            momentum=0.9,
        )

    def epochs(model: Net, run: Callable[[torch.optim.Optimizer], Callable[..., Any]]) -> list[Tensor]:
        optimizer = groups(model)
        rates = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
        step = run(optimizer)
        torch.manual_seed(1)
        for _ in range(2):
            for batch in batches:
                step(*batch)
                rates.step()
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        return left(model, optimizer)

    def eager(optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        def step(*batch: Any) -> None:
            optimizer.zero_grad()
            entropy(twin, *batch).backward()
            optimizer.step()

        return step

    model, batches = net()
    twin = copy.deepcopy(model)
    expected = epochs(twin, eager)
    assert_same(epochs(model, lambda one: schedule(model, one, entropy, budget="90%").step), expected)


def test_clipping_waits_for_all_gradients() -> None:
    def clip(model: nn.Module) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    model, batches = net()
    twin = copy.deepcopy(model)
    expected = plain(twin, adam(twin), batches, entropy, clip)
    optimizer = adam(model)
    training = schedule(model, optimizer, entropy, before_update=lambda: clip(model))
    torch.manual_seed(1)
    found = [training.step(*batch) for batch in batches]
    assert_same([*found, *left(model, optimizer)], expected)
    assert training.stats is not None
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
    assert training.stats is not None
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
    assert training.plans[1].reason == "gradients, hooks, methods or memory that is shared have changed"


def test_a_hook_on_the_step_is_called_once_a_step() -> None:
    model, batches = net()
    optimizer = sgd(model)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    training = schedule(model, optimizer, entropy)
    for batch in batches:
        training.step(*batch)
    assert len(calls) == len(batches)


def test_other_shapes_and_modes_have_schedules_of_their_own() -> None:
    model, batches = net()
    batches += [tuple(one[:7] for one in batches[0])]
    twin = copy.deepcopy(model)
    optimizer, other = sgd(model), sgd(twin)
    training = schedule(model, optimizer, entropy)
    assert_same(trained(model, optimizer, training, batches), plain(twin, other, batches, entropy))
    model.eval()
    twin.eval()
    assert_same(trained(model, optimizer, training, batches), plain(twin, other, batches, entropy))
    assert len(training.plans) == 4
    assert training.plans[0].reason == "the first step"


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
    twin = copy.deepcopy(model)
    expected = plain(twin, adam(twin), batches, in_bfloat16)
    optimizer = adam(model)
    training = schedule(model, optimizer, in_bfloat16, budget="95%")
    assert_same(trained(model, optimizer, training, batches), expected)


def test_autocast_around_the_step_is_refused() -> None:
    model, batches = net()
    training = schedule(model, sgd(model), entropy)
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(ScheduleError, match="expected it inside the loss"),
    ):
        training.step(*batches[0])


def test_a_budget_below_the_floor_names_it_and_its_operator() -> None:
    model, inputs = make("densenet")
    training = schedule(model, sgd(model), loss_of, budget="10 KiB")
    with pytest.raises(
        BudgetError, match=r"10.0 KiB is below .* the least is .* KiB, .* reached where \w+ runs"
    ) as caught:
        training.plan(*inputs)
    fitting = schedule(model, sgd(model), loss_of, budget=caught.value.least)
    assert fitting.plan(*inputs).peak <= caught.value.least


class DependsOnValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).sum()
        return y if y.item() > 0 else -y


def test_a_step_that_depends_on_values_is_refused() -> None:
    model = DependsOnValues()
    training = schedule(model, sgd(model))
    with pytest.raises(GraphError, match=r"not one graph at .*test_schedule\.py:\d+ forward \("):
        training.step(torch.ones(2, 3))


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 2:
            raise ValueError("two rows")
        return self.layer(x).sum()


def test_an_exception_of_the_program_is_named() -> None:
    model = Raises()
    with pytest.raises(GraphError, match=r"ValueError\('two rows'\)"):
        schedule(model, sgd(model)).step(torch.ones(2, 3))


class AsksWhetherItIsTraced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        is_traced = torch.compiler.is_compiling()
        return self.norm(F.dropout(self.layer(x), 0.5)).square().sum() * (2 if is_traced else 1)


def test_gradients_that_differ_are_named_and_nothing_changes() -> None:
    model, batches = net()
    assert schedule(model, sgd(model), entropy).differences(*batches[0]) == []
    asks = AsksWhetherItIsTraced()
    before = [copy.deepcopy(one) for one in (*asks.state_dict().values(), torch.get_rng_state())]
    found = schedule(asks, sgd(asks)).differences(torch.randn(5, 3, generator=torch.Generator()))
    assert {"loss", "layer.weight"} <= set(found)
    assert_same([*asks.state_dict().values(), torch.get_rng_state()], before)


@pytest.mark.parametrize("budget", [None, 100])
@pytest.mark.parametrize("make", [Net, AsksWhetherItIsTraced])
def test_a_training_that_nobody_has_is_freed_with_its_model(
    make: type[nn.Module], budget: int | None
) -> None:
    def run() -> list[weakref.ref[Any]]:
        model = make()
        optimizer = adam(model)
        training = schedule(model, optimizer, lambda model, x: model(x).sum(), budget=budget)
        batch = torch.randn(5, next(model.parameters()).shape[1])
        with (
            pytest.raises(BudgetError) if budget else contextlib.nullcontext(),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            training.step(batch)
        return [weakref.ref(one) for one in (training, model, optimizer, *model.parameters())]

    found = run()
    gc.collect()
    assert [one() for one in found] == [None] * len(found)


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_gradients_are_refused(kind: str) -> None:
    model, batches = net()
    getattr(model.head.weight, kind)(lambda given: None)
    before = left(model, sgd(model))
    with pytest.raises(GraphError, match=r"of shape \(4, 24\) that the step reads has hooks"):
        schedule(model, sgd(model), entropy).step(*batches[0])
    assert_same(left(model, sgd(model)), before)


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
            assert training.stats is not None
            assert measured.peak + training.stats.resident <= training.stats.peak
            peaks.append(training.stats.peak)
            found.append(measured.result)
        found.append(training.step(*batches[-1]))
    assert_same([*found, *left(model, optimizer)], expected)
    assert max(peaks) <= training.plan(*batches[0]).plain_peak + sum(one.nbytes for one in model.parameters())
    assert len(training.plans) == 4  # of first and later micro-batches, of steps with gradients and without


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
            assert torch.equal(found, _stepped(twin, other, batch))
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


def _stepped(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Any, ...]) -> Tensor:
    loss = entropy(model, *batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def test_optimizers_that_need_all_gradients_are_refused() -> None:
    model, _ = net()
    with pytest.raises(ScheduleError, match=r"LBFGS; expected one of torch\.optim"):
        schedule(model, torch.optim.LBFGS(model.parameters()), entropy)


def test_a_budget_that_is_no_number_of_bytes_is_refused() -> None:
    model, _ = net()
    with pytest.raises(ValueError, match="expected bytes"):
        schedule(model, sgd(model), entropy, budget="2 apples")


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


def test_what_is_no_pool_is_refused() -> None:
    model, _ = make(TRAINED[0])
    with pytest.raises(ScheduleError, match="pool is 3; expected a stowplan"):
        schedule(model, sgd(model), loss_of, pool=3)
