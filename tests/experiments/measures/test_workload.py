"""Steps of a network that two allocators serve in turns."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.measures import data
from experiments.measures.workload import Workload
from experiments.models import MODELS, Model


def arrays(work: Workload, name: str) -> dict[str, Any]:
    return {path: getattr(parameter, name) for path, parameter in work._network.namedparams()}


def test_twins_share_parameters_and_no_gradients(chainer: Any) -> None:
    model: Model = MODELS["seq2seq"]
    work = Workload(model, "training", 1, data.load(images=None, source=None, target=None, seed=0))
    work.step()
    twin = work.twin()
    mine, other = arrays(work, "array"), arrays(twin, "array")
    assert all(mine[path] is other[path] for path in mine)
    gradients = {path: None if g is None else g.copy() for path, g in arrays(work, "grad").items()}
    twin.step()
    assert all(mine[path] is array for path, array in arrays(twin, "array").items())
    for path, gradient in arrays(work, "grad").items():
        np.testing.assert_equal(gradient, gradients[path])
        assert gradient is None or not np.shares_memory(gradient, arrays(twin, "grad")[path])
