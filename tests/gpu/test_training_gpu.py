"""Chainer's ResNet-50 on the GPU, through CupyPool and CuPy's pool: the same bits."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool

pytestmark = pytest.mark.gpu

STEPS = 15
BUCKETS = 3
"""Keys of steps."""
State = dict[str, bytes]
SIMULATED = "SIMHIP_HOME" in os.environ
"""The device is the simulated one, which computes as slowly as the host: smaller networks there."""


def train(
    model: Any,
    optimizer: Any,
    loss_of: Callable[[int], Any],
    step: Callable[[int], AbstractContextManager[Any]],
    after_step: Callable[[], object],
) -> State:
    """Train for STEPS steps, and return everything that was computed, as bytes."""
    model.to_device("@cupy:0")
    optimizer.setup(model)
    state: State = {}
    for number in range(STEPS):
        losses: list[float] = []

        def loss(number: int = number, losses: list[float] = losses) -> Any:
            value = loss_of(number)
            losses.append(float(value.array))
            return value

        with step(number % BUCKETS):
            optimizer.update(loss)
        after_step()
        state[f"loss {number}"] = np.float64(losses[0]).tobytes()
    for name, parameter in model.namedparams():
        state[name] = parameter.array.get().tobytes()
    return state


def residual_blocks(chainer: Any) -> Any:
    """Three residual blocks, for the simulated device, on which a step of ResNet-50 takes half a minute."""
    import chainer.functions as F  # noqa: N812
    import chainer.links as L  # noqa: N812

    class Block(chainer.Chain):  # type: ignore[misc]
        def __init__(self, inner: int, outer: int) -> None:
            super().__init__()
            with self.init_scope():
                self.narrow = L.Convolution2D(outer, inner, 1, nobias=True)
                self.wide = L.Convolution2D(inner, outer, 3, pad=1, nobias=True)
                self.first, self.second = L.BatchNormalization(inner), L.BatchNormalization(outer)

        def forward(self, x: Any) -> Any:
            h = F.relu(self.first(self.narrow(x)))
            return F.relu(self.second(self.wide(h)) + x)

    class Network(chainer.Chain):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.enter = L.Convolution2D(3, 16, 5, stride=2)
                self.blocks = chainer.Sequential(*(Block(8, 16) for _ in range(3)))
                self.leave = L.Linear(16, 1000)

        def forward(self, x: Any, t: Any) -> Any:
            h = F.max_pooling_2d(self.blocks(F.relu(self.enter(x))), 2)
            return F.softmax_cross_entropy(self.leave(F.mean(h, axis=(2, 3))), t)

    return Network()


def resnet50(chainer: Any, cupy: Any) -> tuple[Any, Callable[[int], Any]]:
    from stowplan.insight.demo.models import ResNet50

    model, side = (residual_blocks(chainer), 32) if SIMULATED else (ResNet50(), 224)
    data = np.random.default_rng(1)
    images = cupy.asarray(data.standard_normal((8, 3, side, side), dtype=np.float32))
    labels = cupy.asarray(data.integers(0, 1000, 8, dtype=np.int32))
    return model, lambda number: model(images, labels)


def a_run(chainer: Any, cupy: Any, pool: CupyPool | None) -> State:
    np.random.seed(0)  # noqa: NPY002 (Chainer's initializers draw from it)
    cupy.random.seed(0)
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc if pool is None else pool.malloc)
    model, loss_of = resnet50(chainer, cupy)
    optimizer = chainer.optimizers.MomentumSGD(lr=0.001, momentum=0.9)
    if pool is None:
        return train(model, optimizer, loss_of, lambda key: nullcontext(), lambda: None)
    return train(model, optimizer, loss_of, pool.step, pool.wait)


def test_the_pool_changes_no_bit(chainer: Any, cupy: Any) -> None:
    default = a_run(chainer, cupy, None)
    again = a_run(chainer, cupy, None)
    different = [name for name in default if default[name] != again[name]]
    assert not different, f"not deterministic even with CuPy's pool: {different}"
    pool = CupyPool()
    planned = a_run(chainer, cupy, pool)
    assert [name for name in default if default[name] != planned[name]] == []
    # Where the arena grows, plans are made again.
    assert pool.stats.plans - pool.stats.reoptimizations == BUCKETS
    assert pool.stats.replayed > pool.stats.upstream + pool.stats.guests
    print(pool.stats)
