"""Scheduled training on NumPy: bit by bit Chainer's, whatever the schedule; and what speaks against one is found."""

from __future__ import annotations

import gc
import hashlib
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyPool, NumpyRecorder
from stowplan.errors import BudgetError, MissingDependencyError, PoolError, ScheduleError

try:
    from stowplan.chainer import Scheduler, record_graph
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
from chainer import function_node

from stowplan.chainer import seams
from stowplan.chainer.directions import Directions
from stowplan.chainer.swapping import SwapError, SwapFile
from stowplan.scheduling import Schedule, Way, as_recorded, choices, simulate

BATCH = 4


class Everything(chainer.Chain):
    """Shared batch normalization and weights, residuals, dropout, LRN, pooling, an LSTM, a parameter without a use."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.c1 = L.Convolution2D(3, 8, 3, pad=1)
            self.b1 = L.BatchNormalization(8)
            self.c2 = L.Convolution2D(8, 8, 3, pad=1)
            self.b2 = L.BatchNormalization(8)
            self.c3 = L.Convolution2D(8, 4, 1)
            self.lstm = L.LSTM(12 * 4, 16)
            self.shared = L.Linear(16, 16)
            self.fc = L.Linear(None, 10)
            self.unused = L.Linear(3, 3)

    def forward(self, x: Any, t: Any) -> Any:
        h = F.relu(self.b1(self.c1(x)))
        h = F.local_response_normalization(F.max_pooling_2d(h, 2))
        for _ in range(2):
            h = F.relu(self.b2(self.c2(h)) + h)
        h = F.dropout(F.concat([F.relu(self.c3(h)), F.average_pooling_2d(h, 3, 1, 1)]), 0.3)
        n = h.shape[0]
        self.lstm.reset_state()
        words = F.reshape(F.transpose(h, (0, 2, 3, 1)), (n, -1))[:, : 48 * 3]
        total: Any = 0
        for word in F.split_axis(words, 3, 1):
            total = total + F.tanh(self.shared(F.dropout(self.lstm(word), 0.2)))
        self.y = self.fc(F.concat([F.reshape(F.max_pooling_2d(h, 2), (n, -1)), total * 2.0 + 1.0], axis=1))
        return F.softmax_cross_entropy(self.y, t)


class Deep(chainer.Chain):
    """Layers whose arrays, not whose workspaces, make the peak."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.first = L.Convolution2D(3, 8, 1)
            self.layers = chainer.ChainList(*(L.Convolution2D(8, 8, 1) for _ in range(12)))
            self.last = L.Linear(None, 10)

    def forward(self, x: Any, t: Any) -> Any:
        h = self.first(x)
        for layer in self.layers:
            h = F.sigmoid(layer(h))
        return F.softmax_cross_entropy(self.last(h), t)


def batches(steps: int, batch: int = BATCH) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [
        (rng.random((batch, 3, 12, 12), dtype=np.float32), rng.integers(0, 10, batch, dtype=np.int32))
        for _ in range(steps)
    ]


def fingerprint(*trained: Any) -> str:
    """Parameters, statistics, the optimizer's state, and where the random stream stands."""
    from chainer.serializers import DictionarySerializer

    digest = hashlib.sha256()
    for target in trained:
        serializer = DictionarySerializer()
        serializer.save(target)
        for name in sorted(serializer.target):
            value = serializer.target[name]
            if value is not None:
                digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
    digest.update(np.random.get_state(legacy=False)["state"]["key"].tobytes())
    return digest.hexdigest()


def train(
    schedule: Callable[[Any], Scheduler | None],
    steps: int = 6,
    optimizer: str = "Adam",
    hooks: tuple[Any, ...] = (),
    network: Callable[[], Any] = Everything,
    loop: str = "update",
    data: list[tuple[Any, Any]] | None = None,
) -> tuple[str, Scheduler | None]:
    np.random.seed(0)
    net = network()
    opt = getattr(chainer.optimizers, optimizer)().setup(net)
    for hook in hooks:
        opt.add_hook(hook)
    scheduler = schedule(opt)
    for x, t in data or batches(steps):
        with scheduler.step() if scheduler else nullcontext():
            if loop == "update":
                opt.update(net, x, t)
            else:
                loss = net(x, t)
                net.cleargrads()
                loss.backward()
                if loop == "clip":
                    for param in net.params():
                        if param.grad is not None:
                            param.grad = np.clip(param.grad, -0.01, 0.01)
                opt.update()
                del loss
        if scheduler is not None:
            scheduler.wait()
    return fingerprint(net, opt), scheduler


def plain(opt: Any) -> None:
    return None


HOOKS = {
    "none": (),
    "decay": (chainer.optimizer_hooks.WeightDecay(1e-3),),
    "clip": (chainer.optimizer_hooks.GradientClipping(0.1),),
    "noise": (chainer.optimizer_hooks.GradientNoise(1e-3),),
    "lars": (chainer.optimizer_hooks.GradientLARS(), chainer.optimizer_hooks.Lasso(1e-4)),
}


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("optimizer", ["SGD", "MomentumSGD", "Adam", "MSVAG"])
def test_lean_changes_no_bit(optimizer: str, hooks: str) -> None:
    reference, _ = train(plain, optimizer=optimizer, hooks=HOOKS[hooks])
    found, scheduler = train(Scheduler, optimizer=optimizer, hooks=HOOKS[hooks])
    assert found == reference
    assert scheduler is not None
    early = optimizer != "MSVAG" and hooks not in ("clip", "noise")
    assert (scheduler.stats.keeps_gradients is None) == early
    assert (scheduler.stats.watched, scheduler.stats.lean) == (1, 5)


class RandomScheduler(Scheduler):
    """Follows a schedule drawn at random for the graph that was recorded."""

    def __init__(self, optimizer: Any, seed: int, share: float, swap: Any = False) -> None:
        super().__init__(optimizer, budget=1 << 50, swap=swap)
        self.random, self.share = random.Random(seed), share
        self.drawn = 0

    def _solve(self, known: Any, budget: int) -> None:
        graph = known.recording.with_seconds(known.seconds)
        graph = graph.with_seconds(1000 * graph.seconds)  # as of a larger network: there is time to swap
        way = as_recorded(graph).way.copy()
        for storage, ways in choices(graph).items():
            allowed = [w for w in ways if w != Way.SWAPPED or self._swap_to]
            if len(allowed) > 1 and self.random.random() < self.share:
                way[graph.storage == storage] = self.random.choice(allowed[1:])
                self.drawn += 1
        drawn = Schedule(self.order(graph), way)
        known.directions = Directions.of(known.recording.structure, graph, drawn, simulate(graph, drawn))

    def order(self, graph: Any) -> Any:
        """A random order of the backward operators that is one of the graph's."""
        before = [set(row) for row in graph.dependencies().rows()]
        order: list[int] = []
        waiting = list(range(len(graph)))
        done: set[int] = set()
        while waiting:
            ready = [i for i in waiting[:200] if before[i] <= done]
            forward = [i for i in ready if graph.phase[i] == 0]
            chosen = forward[0] if forward else self.random.choice(ready)
            waiting.remove(chosen)
            done.add(chosen)
            order.append(chosen)
        return np.array(order)


@pytest.mark.parametrize("hooks", ["none", "decay"])
@pytest.mark.parametrize("optimizer", ["SGD", "MomentumSGD", "Adam"])
def test_random_schedules_change_no_bit(optimizer: str, hooks: str) -> None:
    reference, _ = train(plain, steps=7, optimizer=optimizer, hooks=HOOKS[hooks])
    recomputed = 0
    for seed in range(6):
        found, scheduler = train(
            lambda opt, seed=seed: RandomScheduler(opt, seed, (0.2, 0.5, 0.9)[seed % 3]),
            steps=7,
            optimizer=optimizer,
            hooks=HOOKS[hooks],
        )
        assert found == reference, f"seed {seed}"
        assert isinstance(scheduler, RandomScheduler)
        assert scheduler.drawn > 0
        assert scheduler.stats.scheduled == 3
        assert scheduler.stats.departed == 0
        recomputed += scheduler.stats.recomputed
    assert recomputed > 100


def test_random_schedules_that_swap_change_no_bit() -> None:
    reference, _ = train(plain, steps=7)
    evicted = 0
    for seed in range(6):
        found, scheduler = train(lambda opt, seed=seed: RandomScheduler(opt, seed, 0.7, swap=True), steps=7)
        assert found == reference, f"seed {seed}"
        assert scheduler is not None
        assert scheduler.stats.keeps_values is None
        assert scheduler._swap.counts.fetched == scheduler._swap.counts.evicted
        evicted += scheduler._swap.counts.evicted
    assert evicted > 100


def test_without_room_for_the_swap_the_rest_of_the_schedule_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    reference, _ = train(plain, steps=7)

    def full(self: Any, array: Any) -> Any:
        raise SwapError("no room")

    monkeypatch.setattr(SwapFile, "evict", full)
    found, scheduler = train(lambda opt: RandomScheduler(opt, 1, 0.7, swap=True), steps=7)
    assert found == reference
    assert scheduler is not None
    assert "no room" in str(scheduler.stats.keeps_values)
    assert scheduler.stats.recomputed > 0


@pytest.mark.parametrize("loop", ["update", "own", "clip"])
def test_loops_of_ones_own(loop: str) -> None:
    reference, _ = train(plain, loop=loop)
    found, scheduler = train(Scheduler, loop=loop)
    assert found == reference
    assert scheduler is not None
    assert (scheduler.stats.keeps_gradients is None) == (loop != "clip")
    if loop == "clip":
        assert "gradients are read" in str(scheduler.stats.keeps_gradients)


def live_peak(step: Callable[[], object], steps: int = 3) -> int:
    recorder = NumpyRecorder(small=1033)
    with recorder:
        for _ in range(steps):
            with recorder.step():
                step()
    return int(recorder.profile().live_peak)


def lean_peak(network: Callable[[], Any], data: tuple[Any, Any]) -> int:
    """Live peak of lean steps whose batch belongs to them, as in an updater."""
    np.random.seed(0)
    net = network()
    opt = chainer.optimizers.Adam().setup(net)
    scheduler = Scheduler(opt)

    def step() -> None:
        if isinstance(net, Everything):  # else the step before is alive until this one makes its own
            net.y = None
            net.lstm.reset_state()
        with scheduler.step():
            opt.update(net, data[0].copy(), data[1].copy())

    step()
    return live_peak(step)


@pytest.mark.parametrize("network", [Everything, Deep])
def test_the_recorded_graph_predicts_the_lean_peak(network: Any) -> None:
    data = batches(1, 32)[0]
    np.random.seed(0)
    net = network()
    opt = chainer.optimizers.Adam().setup(net)
    graph = record_graph(opt, lambda: opt.update(net, *data))
    predicted = simulate(graph, as_recorded(graph)).peak
    assert lean_peak(network, data) == pytest.approx(predicted, rel=0.01)


def test_a_budget_is_kept_in_the_pool_s_arena_and_changes_no_bit() -> None:
    data = batches(12, 32)
    reference, _ = train(plain, data=data, network=Deep)
    peak = lean_peak(Deep, data[0])
    retained = train(Scheduler, data=data[:1], network=Deep)[1].stats.retained_bytes  # type: ignore[union-attr]
    budget = retained + int(0.7 * peak)
    pool = NumpyPool(warmup=0, small=1033)
    found, scheduler = train(lambda opt: Scheduler(opt, pool=pool, budget=budget), data=data, network=Deep)
    assert found == reference
    assert scheduler is not None
    assert scheduler.stats.scheduled == 8
    assert scheduler.stats.recomputed > 0
    assert 0 < scheduler.stats.planned_peak <= budget - retained
    assert pool.wait(60)
    assert pool.plan().arena_bytes <= 1.02 * (budget - retained)


def test_a_budget_that_cannot_be_reached_is_an_error_with_the_least_that_can() -> None:
    with pytest.raises(BudgetError, match="the least that was found is") as caught:
        train(lambda opt: Scheduler(opt, budget=1000), steps=8)
    assert caught.value.least > 1000
    assert function_node.FunctionNode.apply is seams.apply


def test_other_structures_depart_and_get_a_schedule_of_their_own() -> None:
    usual, short = batches(1)[0], batches(1, 2)[0]
    data = [usual] * 6 + [short] + [usual] * 2 + [short] * 6 + [usual] * 2
    reference, _ = train(plain, data=data)
    found, scheduler = train(lambda opt: Scheduler(opt, budget="1 GiB"), data=data)
    assert found == reference
    assert scheduler is not None
    assert scheduler.stats.departed >= 2
    assert scheduler.stats.schedules == 2


class TwoLosses(Everything):
    """One graph that two backward passes come by."""

    def forward(self, x: Any, t: Any) -> Any:
        super().forward(x, t)
        side = F.sum(self.y * self.y) * 1e-3
        self.cleargrads()
        side.backward()
        return F.softmax_cross_entropy(self.y, t)


class Forgetful(Everything):
    def forward(self, x: Any, t: Any) -> Any:
        h = F.forget(lambda x: F.relu(self.b1(self.c1(x))), x)
        return F.sum(self.c3(h) ** 2) + super().forward(x, t)


class Penalized(Everything):
    """A gradient penalty: double backprop."""

    def forward(self, x: Any, t: Any) -> Any:
        image = chainer.Variable(x)
        y = F.sum(F.tanh(self.c1(image)))
        (gradient,) = chainer.grad([y], [image], enable_double_backprop=True)
        return super().forward(x, t) + F.sum(gradient * gradient)


class Truncated(Everything):
    """The loss of a part whose history was cut off."""

    def forward(self, x: Any, t: Any) -> Any:
        h = F.relu(self.c1(x))
        h.unchain_backward()
        return super().forward(x, t) + F.sum(self.c2(h) ** 2)


@pytest.mark.parametrize("network", [TwoLosses, Forgetful, Penalized, Truncated])
def test_what_is_out_of_the_common_is_right(network: Any) -> None:
    reference, _ = train(plain, network=network)
    found, scheduler = train(Scheduler, network=network)
    assert found == reference
    assert scheduler is not None
    if network is TwoLosses:
        assert "two backward passes" in str(scheduler.stats.keeps_graph)
    if network is Forgetful:
        assert "backward pass of its own" in str(scheduler.stats.keeps_gradients)
    for seed in range(3):
        found, _ = train(lambda opt, seed=seed: RandomScheduler(opt, seed, 0.6), steps=6, network=network)
        assert found == reference


def test_two_models_take_turns() -> None:
    """As in adversarial training: the second network's loss reaches through the first."""

    def run(scheduled: bool) -> str:
        np.random.seed(0)
        maker, judge = L.Linear(8, 300), L.Linear(300, 1)
        opts = [chainer.optimizers.Adam().setup(link) for link in (maker, judge)]
        scheduler = Scheduler(opts) if scheduled else None
        rng = np.random.default_rng(1)
        for _ in range(6):
            z = rng.standard_normal((4, 8)).astype(np.float32)
            with scheduler.step() if scheduler else nullcontext():
                fake = F.tanh(maker(z))
                verdict = judge(fake)
                opts[0].update(lambda verdict=verdict: F.sum(F.softplus(-verdict)))
                opts[1].update(lambda verdict=verdict: F.sum(F.softplus(verdict)))
                del fake, verdict
        if scheduler is not None:
            assert "two backward passes" in str(scheduler.stats.keeps_graph)
        return fingerprint(maker, judge, *opts)

    assert run(True) == run(False)


def test_gradient_accumulation_is_left_to_chainer() -> None:
    def run(scheduled: bool) -> str:
        np.random.seed(0)
        net = Everything()
        opt = chainer.optimizers.MomentumSGD().setup(net)
        scheduler = Scheduler(opt) if scheduled else None
        data = batches(12)
        for i in range(0, 12, 2):
            with scheduler.step() if scheduler else nullcontext():
                net.cleargrads()
                for x, t in data[i : i + 2]:
                    loss = net(x, t)
                    loss.backward()
                    del loss
                opt.update()
        return fingerprint(net, opt)

    assert run(True) == run(False)


class Failing(Everything):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any, t: Any) -> Any:
        self.calls += 1
        loss = super().forward(x, t)
        return Bomb().apply((loss,))[0] if self.calls == 4 else loss


class Bomb(function_node.FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return (inputs[0].copy(),)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        raise KeyboardInterrupt


def test_an_exception_in_the_middle_leaves_chainer_as_it_was() -> None:
    np.random.seed(0)
    net = Failing()
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = Scheduler(opt)
    gc.collect()  # schedulers of other tests
    for number, (x, t) in enumerate(batches(6), 1):
        if number == 4:
            with pytest.raises(KeyboardInterrupt), scheduler.step():
                opt.update(net, x, t)
        else:
            with scheduler.step():
                opt.update(net, x, t)
        assert function_node.FunctionNode.apply is seams.apply
        assert chainer._backprop._backprop_to_all is seams.backprop_to_all
        assert chainer._backprop_utils.backprop_step is seams.backprop_step
        assert "update" not in vars(opt)
    assert scheduler.stats.lean == 4
    assert not {"grad", "grad_var"} & set(vars(chainer.Parameter))


def test_a_second_pass_after_the_updates_is_an_error_that_says_so() -> None:
    np.random.seed(0)
    net = Everything()
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = Scheduler(opt)
    kept = []

    def loss(x: Any, t: Any) -> Any:
        kept[:] = [net(x, t)]
        return kept[0]

    (x, t), *_ = batches(1)
    for _ in range(2):
        with scheduler.step():
            opt.update(loss, x, t)
    with pytest.raises(ScheduleError, match="leaves the step out"), scheduler.step():
        opt.update(loss, x, t)
        kept[0].backward()


def test_steps_do_not_nest() -> None:
    opt = chainer.optimizers.SGD().setup(L.Linear(2, 2))
    scheduler = Scheduler(opt)
    with scheduler.step(), pytest.raises(PoolError, match="do not nest"), scheduler.step():
        pass


@pytest.mark.parametrize("budget", ["much", -1, True, "1 parsec"])
def test_a_budget_is_a_number_of_bytes(budget: Any) -> None:
    with pytest.raises(ValueError, match="expected bytes"):
        Scheduler(chainer.optimizers.SGD().setup(L.Linear(2, 2)), budget=budget)
