"""`experiments.device` on a small network; a program of `experiments.gpu`."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments import device
from experiments.gpu.__main__ import measured
from experiments.measures.device_training import PAGE

pytestmark = pytest.mark.usefixtures("cupy", "chainer_on_cuda")


def test_a_small_network(tmp_path: Path) -> None:
    options = ("--quick", "--model", "ptb", "--way", "pool", "--out", str(tmp_path))
    done = CliRunner().invoke(device.main, options)
    assert done.exit_code == 0, done.output
    with open(tmp_path / "device.csv", newline="", encoding="utf-8") as file:
        rows = {row["way"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["cupy", "pool"]
    assert {row["device"] for row in rows.values()} == {"simulated device"}
    assert len({row["fingerprint"] for row in rows.values()}) == 1
    for row in rows.values():
        in_use = [int(row[f"in_use_{step}"]) for step in range(1, device.QUICK_STEPS + 1)]
        assert int(row["retained"]) < min(in_use[2:])
        assert max(in_use) <= int(row["most"])
    assert not rows["pool"]["broken"]
    assert int(rows["pool"]["serving_from"]) == device.DUE["pool"]
    assert float(rows["pool"]["last_replayed"]) > 0.9
    assert "simulated device" in (tmp_path / "device.md").read_text(encoding="utf-8")


def test_a_program_of_a_gpu() -> None:
    pool, marked = measured("cupy", "decoding", {"pool": "CuPy", "marked": "ours"}, True, 2, 0)["lines"]
    assert pool["identical"]
    assert 0 < marked["end"] <= marked["most"] <= pool["most"] + PAGE
    assert 0 < marked["replayed"] < 1
