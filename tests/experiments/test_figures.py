"""One cell of each figure, from the command to the tables and pictures; resuming; what is refused before any work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments import growth, heuristic, memory
from experiments import time as step_time
from experiments.measures import peers
from experiments.models import MODELS, Model

from .tables import rows_of, run

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


def test_memory_from_recorded_and_from_predicted_steps(tmp_path: Path, tiny: str) -> None:
    run(memory.main, tmp_path, "--model", tiny, "--device", "cpu")
    rows = {(row["phase"], int(row["batch"])): row for row in rows_of(tmp_path / "memory.csv")}
    assert set(rows) == {("training", 16), ("training", 1024), ("inference", 1)}
    assert all(row["arena"] == row["lower_bound"] for row in rows.values())
    assert all(int(row["pool_free-lists"]) >= int(row["pool_none"]) > 0 for row in rows.values())
    assert rows["training", 16]["recorded"] == "True"
    assert abs(float(rows["training", 16]["prediction_error"])) < 0.005
    parameters = 3 * 8 * 9 + 8 + 8 * 1000 + 1000
    assert int(rows["inference", 1]["retained"]) == 4 * parameters
    table = (tmp_path / "memory.md").read_text(encoding="utf-8")
    assert all(f"| arena over {title} |" in table for title in memory.POOLS.values())
    (check,) = rows_of(tmp_path / "prediction.csv")
    assert abs(float(check["error"])) < 0.005


def test_a_finished_cell_is_not_run_again(tmp_path: Path, tiny: str) -> None:
    options = ("--model", tiny, "--device", "cpu", "--phase", "inference")
    run(heuristic.main, tmp_path, *options)
    cell = tmp_path / "heuristic" / "cells" / "cpu-tiny-inference-1.json"
    kept = json.loads(cell.read_text())
    kept["row"]["blocks"] = 12345
    cell.write_text(json.dumps(kept))
    run(heuristic.main, tmp_path, *options)
    assert rows_of(tmp_path / "heuristic.csv")[0]["blocks"] == "12345"
    run(heuristic.main, tmp_path, *options, "--seed", "1")  # other data
    (row,) = rows_of(tmp_path / "heuristic.csv")
    assert row["blocks"] != "12345"
    assert float(row["best_fit_seconds"]) > 0


def test_time_of_a_step_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_time, "TURN", 0)
    monkeypatch.setattr(peers, "available", dict)
    options = "--model googlenet --phase inference --device cpu --quick --limit 1000"
    run(step_time.main, tmp_path, *options.split())
    (row,) = rows_of(tmp_path / "time.csv")
    low, middle, high = json.loads(row["ratio_NumPy"])
    assert low <= middle <= high
    assert int(row["rounds_NumPy"]) == step_time.QUICK_ROUNDS


def test_growth_over_steps_that_differ(tmp_path: Path) -> None:
    run(growth.main, tmp_path, "--device", "cpu", "--batch", "1", "--steps", "10")
    rows = {row["pool"]: row for row in rows_of(tmp_path / "growth.csv")}
    assert set(rows) == {*memory.POOLS.values(), "stowplan"}
    assert float(rows["no pool"]["over_live"]) == pytest.approx(1, rel=0.01)  # it rounds sizes up
    assert float(rows["CuPy"]["over_live"]) <= float(rows["Chainer 1"]["over_live"])
    assert float(rows["stowplan"]["reserved"]) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "lenet"], "'lenet' is not one of"),
        (["--batch", "1000000000"], "expected a batch of at most"),
    ],
)
def test_bad_input_is_refused_before_any_work(tmp_path: Path, options: list[str], message: str) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(memory.main, ["--out", str(out), *options])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert not out.exists()
