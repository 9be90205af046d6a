"""A network whose steps take no time, for tests of the experiments' figures (tests/gpu/test_figures_gpu.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.models import MODELS, Model

pytest.importorskip(
    "matplotlib", reason="matplotlib is not installed; expected: pip install 'stowplan[experiments]'"
)

NETWORK = """
import chainer
import chainer.functions as F
import chainer.links as L


class Tiny(chainer.Chain):
    insize = 32

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.convolution = L.Convolution2D(3, 8, 3)
            self.classes = L.Linear(8, 1000)

    def forward(self, x, t):
        return F.softmax_cross_entropy(self.predict(x), t)

    def predict(self, x):
        return self.classes(F.mean(F.relu(self.convolution(x)), axis=(2, 3)))
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A network whose steps take no time, in place of all others, in the processes that are started, too."""
    (tmp_path / "tiny_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = Model("tiny", "Tiny", ("tiny_network", "Tiny"), "images", batches=(16, 1024))
    monkeypatch.setitem(MODELS, "alexnet", model)
    return "alexnet"
