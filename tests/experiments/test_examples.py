"""Chainer's examples with the two lines and without them: the same bits, and replayed."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.allocator._core import Step
from stowplan.errors import MissingDependencyError

try:
    from experiments.examples import train_mnist
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)


class PatientPool(NumpyPool):
    """Waits for its plans, so that what is replayed does not depend on how fast they are made."""

    def step(self, key: Hashable = None) -> Step:
        self.wait()
        return super().step(key)


def mnist(pool: NumpyPool | None, out: str) -> Any:
    return train_mnist.train(pool, out=out, epochs=5, samples=(1050, 250), units=50)


def results(trainer: Any) -> tuple[dict[str, bytes], list[dict[str, float]]]:
    model = trainer.updater.get_optimizer("main").target
    log = [
        {k: v for k, v in entry.items() if not k.startswith("pool/") and k != "elapsed_time"}
        for entry in trainer.get_extension("LogReport").log
    ]
    return {name: np.asarray(p.array).tobytes() for name, p in model.namedparams()}, log


def test_two_lines_change_no_bit_and_replay(tmp_path: Path) -> None:
    pool = PatientPool()
    pooled = mnist(pool, str(tmp_path))
    last = pooled.get_extension("LogReport").log[-1]
    assert last["pool/replayed"] > 0.95
    assert last["pool/plans"] >= 2
    assert pool.stats.reoptimizations == 0
    assert results(pooled) == results(mnist(None, str(tmp_path)))
