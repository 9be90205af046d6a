"""Steps of a network that two allocators serve in turns."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.measures import data
from experiments.measures.recordings import overflows
from experiments.measures.runner import Cell
from experiments.measures.workload import Workload
from experiments.models import MODELS, Model


def arrays(work: Workload, name: str) -> dict[str, Any]:
    return {path: getattr(parameter, name) for path, parameter in work._network.namedparams()}


def test_twins_share_parameters_and_no_gradients(chainer: Any) -> None:
    model: Model = MODELS["seq2seq"]
    work = Workload(model, "training", 1, data.Data())
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


def test_what_chainer_cannot_index_on_a_device_is_not_run(chainer: Any) -> None:
    unet = MODELS["unet"]
    columns = 64 * 3 * 3 * 280 * 280  # of one example, in its second convolution
    assert unet.most_indexed is not None
    assert unet.most_indexed * columns < 2**31 <= (unet.most_indexed + 1) * columns
    cells = [Cell(device, unet, "training", batch) for device in ("cpu", "gpu") for batch in unet.batches]
    assert [overflows(cell) for cell in cells] == [False] * 4 + [True] * 2
