"""Plans from one training run to the next, with real Chainer: the optimizer's state is made in the first step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest

from stowplan import NumpyPool

STEPS = 8


class Network(chainer.Chain):
    """Three layers, batch normalization after the first if so wished."""

    def __init__(self, normalized: bool) -> None:
        super().__init__()
        with self.init_scope():
            self.first, self.second, self.last = L.Linear(50, 100), L.Linear(100, 80), L.Linear(80, 10)
            self.norm = L.BatchNormalization(100) if normalized else None

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        if self.norm is not None:
            h = self.norm(h)
        return self.last(F.relu(self.second(F.relu(h))))


def train(
    pool: NumpyPool | None, make: Callable[[], Any], normalized: bool, snapshot: Path | None = None
) -> tuple[list[float], list[int], Any, Any]:
    """Return the losses, how many requests of each step were not replayed, the network and the optimizer."""
    np.random.seed(0)
    rng = np.random.default_rng(0)
    x, labels = rng.random((64, 50), dtype=np.float32), rng.integers(0, 10, 64).astype(np.int32)
    network = Network(normalized)
    optimizer = make().setup(network)
    if snapshot is not None:
        chainer.serializers.load_npz(snapshot / "network.npz", network)
        chainer.serializers.load_npz(snapshot / "optimizer.npz", optimizer)

    def step() -> float:
        network.cleargrads()
        loss = F.softmax_cross_entropy(network(x), labels)
        loss.backward()
        optimizer.update()
        return float(loss.array)

    losses, elsewhere = [], []
    for _ in range(STEPS):
        if pool is None:
            losses.append(step())
            continue
        before = pool.stats
        with pool:
            with pool.step():
                losses.append(step())
            pool.wait()
        after = pool.stats
        elsewhere.append(after.guests + after.upstream - before.guests - before.upstream)
    return losses, elsewhere, network, optimizer


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("name", ["SGD", "MomentumSGD", "Adam"])
def test_saved_plans_serve_all_steps_from_the_third_on(tmp_path: Path, name: str, normalized: bool) -> None:
    make = getattr(chainer.optimizers, name)
    first = NumpyPool()
    losses, elsewhere, network, optimizer = train(first, make, normalized)
    assert losses == train(None, make, normalized)[0]
    assert elsewhere[3:] == [0] * (STEPS - 3)
    first.save(tmp_path / "plans")

    again = NumpyPool.load(tmp_path / "plans")
    losses_again, elsewhere, _, _ = train(again, make, normalized)
    assert losses_again == losses
    assert elsewhere[2:] == [0] * (STEPS - 2)

    chainer.serializers.save_npz(tmp_path / "network.npz", network)
    chainer.serializers.save_npz(tmp_path / "optimizer.npz", optimizer)
    resumed = NumpyPool.load(tmp_path / "plans")
    losses, elsewhere, _, _ = train(resumed, make, normalized, tmp_path)
    assert losses == train(None, make, normalized, tmp_path)[0]
    assert elsewhere == [0] * STEPS
