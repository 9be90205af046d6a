"""Random networks under random schedules, optimizers and hooks: bit by bit Chainer's."""

from __future__ import annotations

import random
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest

from stowplan.chainer import Scheduler

from .training_runs import HOOKS, Everything, RandomScheduler, SparingScheduler, alike

CHANNELS = 6


class RandomNetwork(chainer.Chain):
    """Operators drawn one after another, each of images that are there already; some links more than once."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        with self.init_scope():
            self.first = L.Convolution2D(3, CHANNELS, 3, pad=1)
            self.convolutions = chainer.ChainList(
                *(L.Convolution2D(CHANNELS, CHANNELS, size, pad=size // 2) for size in (1, 3, 1))
            )
            self.normalizations = chainer.ChainList(*(L.BatchNormalization(CHANNELS) for _ in range(2)))
            self.lstm = L.LSTM(CHANNELS, CHANNELS)
            self.last = L.Linear(None, 10)
            self.unused = L.Linear(CHANNELS, 3)

    def forward(self, x: Any, t: Any) -> Any:
        draw = random.Random(self.seed)
        self.lstm.reset_state()
        images = [F.relu(self.first(x))]
        for _ in range(draw.randint(6, 16)):
            images.append(self.operator(draw, images))
            if len(images) > 4:
                del images[draw.randrange(len(images) - 1)]
        total = images[-1]
        for image in images[:-1]:
            total = total + F.sum(image) * 1e-3
        return F.softmax_cross_entropy(self.last(F.dropout(total, 0.2)), t)

    def operator(self, draw: random.Random, images: list[Any]) -> Any:
        h = draw.choice(images)
        other = draw.choice(images)
        kind = draw.randrange(12)
        if kind < 2:
            return draw.choice(list(self.convolutions))(h)
        if kind == 2:
            return draw.choice(list(self.normalizations))(h)
        if kind == 3:
            return draw.choice([F.relu, F.tanh, F.sigmoid, F.elu, F.leaky_relu])(h)
        if kind == 4:
            return h + other if draw.random() < 0.7 else h * F.sigmoid(other)
        if kind == 5:
            return F.dropout(h, 0.3)
        if kind == 6:
            return F.local_response_normalization(h)
        if kind == 7:
            return F.max_pooling_2d(h, 3, 1, 1) if draw.random() < 0.5 else F.average_pooling_2d(h, 3, 1, 1)
        if kind == 8:
            half = CHANNELS // 2
            return F.concat([h[:, :half], other[:, half:]])
        if kind == 9:
            a, b = F.split_axis(h, 2, axis=1)
            return F.concat([b, F.relu(a)], axis=1)
        if kind == 10:
            return F.reshape(F.transpose(h, (0, 1, 3, 2)), h.shape) * 0.5 + h
        state = F.tanh(self.lstm(F.average(h, axis=(2, 3))))
        return h + F.broadcast_to(F.expand_dims(F.expand_dims(state, 2), 3), h.shape)


OPTIMIZERS = ["SGD", "MomentumSGD", "Adam", "RMSprop", "AdaDelta", "MSVAG"]


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 18))]
)
def test_random_networks_are_bit_identical(seed: int) -> None:
    draw = random.Random(seed)
    optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)]
    hooks = list(HOOKS)[seed % len(HOOKS)]
    swap = seed % 3 == 0
    share = 0.9 if swap else draw.choice([0.3, 0.6, 0.9])
    network = Everything if seed % 6 == 3 else lambda: RandomNetwork(seed)
    how: dict[str, Any] = {"optimizer": optimizer, "hooks": HOOKS[hooks], "network": network}
    lean = alike(Scheduler, steps=6, **how)
    early = optimizer != "MSVAG" and hooks not in ("clip", "noise")
    assert (lean.stats.keeps_gradients is None) == early
    assert (lean.stats.watched, lean.stats.lean) == (1, 5)
    scheduler = alike(lambda opt: RandomScheduler(opt, seed, share, swap), steps=6, **how)
    assert (scheduler.stats.scheduled, scheduler.stats.departed) == (2, 0)
    assert scheduler.drawn > 0
    assert scheduler.stats.recomputed > 0 or swap
    assert np.isfinite(scheduler.recordings[0].graph.seconds).all()
    assert scheduler.stats.keeps_values is None or not swap
    sparing = alike(SparingScheduler, steps=3, **how)
    assert sparing.stats.recomputed > 0
    own, graph = (one.recordings[0].graph for one in (sparing, scheduler))
    assert np.array_equal(own.size, graph.size)
    assert own.workspace.sum() == pytest.approx(graph.workspace.sum(), rel=0.02)
