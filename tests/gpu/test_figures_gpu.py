"""A cell of each figure on a GPU, by the same commands as on the host."""

from __future__ import annotations

import csv
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from experiments import growth, heuristic, memory
from experiments import time as step_time
from experiments.measures.runner import title_of

from ..experiments.tiny_network import tiny  # noqa: F401
from .test_training_gpu import SIMULATED

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("chainer")]


def rows_of(figure: ModuleType, out: Path, *options: str) -> list[dict[str, str]]:
    done = CliRunner().invoke(figure.main, ["--out", str(out), "--device", "gpu", *options])
    assert done.exit_code == 0, done.output
    with open(out / f"{figure.__name__.rpartition('.')[2]}.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert all(row["device"] == title_of("gpu") and not row.get("note") for row in rows)
    return rows


@pytest.fixture
def model(request: pytest.FixtureRequest) -> str:
    """A network's name: GoogLeNet's, or that of a tiny one on the simulated device."""
    return request.getfixturevalue("tiny") if SIMULATED else "googlenet"


@pytest.mark.parametrize("phase", ["training", "inference"])
def test_bytes_of_a_network(phase: str, model: str, tmp_path: Path) -> None:
    cell = ("--model", model, "--phase", phase, "--batch", "2")
    (row,) = rows_of(memory, tmp_path, *cell)
    assert row["recorded"] == "True"
    assert float(row["above_bound"]) == 0
    (row,) = rows_of(heuristic, tmp_path, *cell)
    assert int(row["blocks"]) > (5 if SIMULATED else 100)


@pytest.mark.skipif(SIMULATED, reason="the simulated device's times say nothing about a device")
@pytest.mark.usefixtures("nvidia")
@pytest.mark.parametrize("phase", ["training", "inference"])
def test_times_of_a_network(phase: str, tmp_path: Path) -> None:
    cell = ("--model", "googlenet", "--phase", phase, "--batch", "2")
    (row,) = rows_of(step_time, tmp_path, *cell, "--quick")
    for name in step_time.GPU:
        assert float(row[f"seconds_{name}"]) > 0


def test_growth(tmp_path: Path) -> None:
    rows = {row["pool"]: row for row in rows_of(growth, tmp_path, "--batch", "2", "--steps", "10")}
    assert set(rows) == set(growth.LINES.values())
    # The real pool serves requests below 512 bytes as well.
    assert float(rows["CuPy itself"]["reserved"]) >= float(rows["CuPy"]["reserved"])
    assert float(rows["stowplan"]["reserved"]) > 0
