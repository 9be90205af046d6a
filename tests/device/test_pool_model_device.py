"""The model of CuPy's pool beside the real one: the same bytes and the same blocks after every request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.measures.data import Data
from experiments.measures.device_training import NETWORKS
from experiments.measures.workload import Phase, Workload

from .lockstep import lockstep

STEPS = 3
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("alexnet", "resnet50", "googlenet")]
SIDES = {"resnet50": 32}
SIZES = (1, 512, 513, 4096, 5000, 2**16, 2**16 + 512, 2**20)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("streams", [1, 3])
def test_seeded_programs(cupy: Any, streams: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = [cupy.cuda.Stream(non_blocking=True) for _ in range(streams)]
    live: list[Any] = []
    with lockstep(cupy) as comparison:
        for _ in range(2000):
            if live and rng.random() < 0.49:
                live.pop(rng.integers(len(live)))  # on whatever stream is current
            else:
                size = int(rng.choice(SIZES)) if rng.random() < 0.7 else int(2 ** rng.uniform(0, 22))
                with chosen[rng.integers(streams)]:
                    live.append(comparison.pool.malloc(size))
        live.clear()
    assert comparison.differences == []
    assert comparison.requests >= 2000
    assert comparison.model.ties > 0
    assert comparison.model.used == 0


@pytest.mark.parametrize("phase", ["training", "inference"])
@pytest.mark.parametrize("name", ["seq2seq", "ptb", *LARGE])
@pytest.mark.usefixtures("chainer_on_cuda")
def test_networks(cupy: Any, monkeypatch: pytest.MonkeyPatch, name: str, phase: Phase) -> None:
    model = NETWORKS[name]
    if name in SIDES:
        monkeypatch.setattr(model.network, "insize", SIDES[name])
    cupy.random.seed(0)
    with lockstep(cupy) as comparison:
        work = Workload(model, phase, 2, Data(), gpu=True)
        for _ in range(STEPS if phase == "training" else 1):
            work.step()
    assert comparison.differences == []
    assert comparison.requests > 100
