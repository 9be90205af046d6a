"""A network of everything, its training with and without a schedule, and schedules drawn at random. Needs Chainer."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np

from stowplan.chainer import Scheduler
from stowplan.chainer.schedule_follower import Directions
from stowplan.chainer.sparing import Sparing
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


def train_step(net: Any, opt: Any, x: Any, t: Any, loop: str) -> None:
    if loop == "update":
        opt.update(net, x, t)
        return
    loss = net(x, t)
    net.cleargrads()
    loss.backward()
    if loop == "clip":
        for param in net.params():
            if param.grad is not None:
                param.grad = np.clip(param.grad, -0.01, 0.01)
    opt.update()


def train(
    schedule: Callable[[Any], Scheduler | None],
    steps: int = 6,
    optimizer: str = "Adam",
    hooks: tuple[Any, ...] = (),
    network: Callable[[], Any] = Everything,
    loop: str = "update",
    data: list[tuple[Any, Any]] | None = None,
) -> tuple[str, Any]:
    """Train a network; return its fingerprint, and the scheduler, if there was one."""
    np.random.seed(0)
    net = network()
    opt = getattr(chainer.optimizers, optimizer)().setup(net)
    for hook in hooks:
        opt.add_hook(hook)
    scheduler = schedule(opt)
    for x, t in data or batches(steps):
        with scheduler.step() if scheduler else nullcontext():
            train_step(net, opt, x, t, loop)
        if scheduler is not None:
            scheduler.wait()
    return fingerprint(net, opt), scheduler


def plain(opt: Any) -> None:
    return None


def alike(*schedules: Callable[[Any], Scheduler], **how: Any) -> Any:
    """Train plainly and by each of these schedules, to the same bits; return the last scheduler."""
    reference, _ = train(plain, **how)
    for schedule in schedules:
        found, scheduler = train(schedule, **how)
        assert found == reference
    return scheduler


HOOKS = {
    "none": (),
    "decay": (chainer.optimizer_hooks.WeightDecay(1e-3),),
    "clip": (chainer.optimizer_hooks.GradientClipping(0.1),),
    "noise": (chainer.optimizer_hooks.GradientNoise(1e-3),),
    "lars": (chainer.optimizer_hooks.GradientLARS(), chainer.optimizer_hooks.Lasso(1e-4)),
}


class SparingScheduler(Scheduler):
    """Drops every other value in steps that have no schedule."""

    def __init__(self, optimizer: Any, watch: bool = True, **options: Any) -> None:
        super().__init__(optimizer, budget=1 << 50, watch=watch, **options)

    def _sparing(self) -> Sparing:
        return Sparing(lambda: 0)


class RandomScheduler(Scheduler):
    """Follows a schedule drawn at random for the graph that was recorded."""

    def __init__(self, optimizer: Any, seed: int, share: float, swap: Any = False, **options: Any) -> None:
        super().__init__(optimizer, budget=1 << 50, swap=swap, **options)
        self.random, self.share = random.Random(seed), share
        self.drawn = 0

    def _solve(self, known: Any, budget: int) -> None:
        graph = known.recording.with_seconds(known.seconds)
        graph = graph.with_seconds(1000 * graph.seconds)  # as of a larger network: there is time to swap
        way = as_recorded(graph).way.copy()
        for storage, ways in choices(graph).items():
            allowed = [w for w in ways if w < Way.SWAPPED or self._swaps]
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
