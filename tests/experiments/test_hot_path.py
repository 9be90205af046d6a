"""The benchmark of the hot path runs and measures what it says; what it finds is not a test's business."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments import hot_path
from experiments.measures import peers

from .tables import rows_of


def test_one_run_makes_the_table_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_path, "QUICK_ROUNDS", 2)
    monkeypatch.setattr(hot_path, "NUMPY_SIZES", (64, 0, 0, 2**16))
    monkeypatch.setattr(hot_path, "HELD_SIZES", (2**24,))
    monkeypatch.setattr(hot_path, "CUPY_SIZES", (2**16,))
    monkeypatch.setattr(peers, "available", dict)
    path = tmp_path / "rows.csv"
    done = CliRunner().invoke(hot_path.main, ["--quick", "--csv", str(path)])
    assert done.exit_code == 0, done.output
    found = rows_of(path)
    pools = {(row["contestant"], int(row["bytes"])) for row in found if row["part"].startswith("numpy.empty")}
    assert pools == {(name, size) for name in ("NumPy", "NumpyPool") for size in (64, 2**16, 2**24)}
    assert all(float(row["ns"]) > 0 for row in found)
