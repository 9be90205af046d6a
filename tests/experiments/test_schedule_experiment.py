"""One quick cell of `experiments.schedule`, from the command to the tables and the picture, and what it is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import schedule
from experiments.measures import scheduled_steps, step_graphs
from experiments.measures.scheduled_steps import LEAN, SCHEDULED, Task
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


class Deep(chainer.ChainList):
    insize = 4

    def __init__(self):
        # Products so small that no library divides them among threads.
        hidden = [L.Linear(64, 64) for _ in range(9)]
        super().__init__(L.Linear(48, 64), *hidden, L.Linear(64, 8), L.Linear(8, 1000))

    def forward(self, x, t):
        return F.softmax_cross_entropy(self.predict(x), t)

    def predict(self, x):
        for layer in list(self)[:-1]:
            x = F.dropout(F.relu(layer(x)), 0.1)
        return list(self)[-1](x)
"""


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A network whose steps take no time, whose contestants run in this process."""
    (tmp_path / "deep_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = Model("alexnet", "Deep", ("deep_network", "Deep"), "images", batches=(32,))
    monkeypatch.setitem(MODELS, "alexnet", model)

    def here(what: str, task: Task) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(scheduled_steps.RUN[what](task)))
        return found

    monkeypatch.setattr(schedule, "apart", here)
    monkeypatch.setattr(step_graphs, "POINTS", 3)
    return "alexnet"


def test_a_measured_cell(tmp_path: Path, deep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled_steps, "OPTIMIZERS", ("MomentumSGD",))
    options = ("--model", deep, "--batch", "32", "--quick", "--limit", "1000", "--budgets", "0.95,0.5,0")
    run(schedule.main, tmp_path, "--device", "cpu", *options)
    (row,) = rows_of(tmp_path / "schedule.csv")
    assert row["recorded"] == "True"
    assert float(row["ratio"]) < 0.8
    assert float(row["ratio"]) < float(row["ratio_in_all"])
    assert int(row["arena"]) == pytest.approx(int(row["lean"]), rel=0.02)
    assert int(row["rounds"]) == schedule.QUICK_ROUNDS

    large, half, least = rows_of(tmp_path / "schedule_budgets.csv")
    assert "lean steps keep to it" in large["note"]
    assert int(least["peak"]) <= int(half["peak"]) <= 0.5 * 1.01 * int(row["plain"])
    for one in (half, least):
        assert abs(float(one["deviation"])) < 0.02
        assert float(one["bound"]) <= float(one["ratio"])
        assert int(one["recomputed"]) > 0

    (bits,) = rows_of(tmp_path / "schedule_bits.csv")
    for optimizer in scheduled_steps.OPTIMIZERS:
        assert bits[f"{optimizer} {LEAN}"] == bits[f"{optimizer} {SCHEDULED}"] == "True"
    assert "| equal | equal |" in (tmp_path / "schedule_bits.md").read_text(encoding="utf-8")
    assert (tmp_path / "schedule.png").stat().st_size > 1000
