"""A finished cell of a figure is not measured again; the other figures' cells: tests/gpu/test_figures_gpu.py."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments import heuristic
from experiments.models import MODELS, Model

pytest.importorskip(
    "matplotlib", reason="matplotlib is not installed; expected: pip install 'stowplan[experiments]'"
)
pytestmark = pytest.mark.usefixtures("chainer")

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


def test_a_finished_cell_is_not_run_again(tmp_path: Path, tiny: str) -> None:
    def blocks(*options: str) -> str:
        words = ["--out", str(tmp_path), "--model", tiny, "--device", "cpu", "--phase", "inference", *options]
        done = CliRunner().invoke(heuristic.main, words)
        assert done.exit_code == 0, done.output
        with open(tmp_path / "heuristic.csv", newline="", encoding="utf-8") as file:
            (row,) = csv.DictReader(file)
        return row["blocks"]

    found = blocks()
    cell = tmp_path / "heuristic" / "cells" / "cpu-tiny-inference-1.json"
    kept = json.loads(cell.read_text())
    kept["row"]["blocks"] = 12345
    cell.write_text(json.dumps(kept))
    assert blocks() == "12345"
    assert blocks("--seed", "1") == found  # other data
