"""The benchmark of threads runs and measures what it says; what it finds is not a test's business."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments import threads

from .tables import rows_of


def test_one_run_makes_the_table_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREADS", (1, 3))
    monkeypatch.setattr(threads, "QUICK_ROUNDS", 1)
    path = tmp_path / "rows.csv"
    done = CliRunner().invoke(threads.main, ["--quick", "--csv", str(path)])
    assert done.exit_code == 0, done.output
    found = rows_of(path)
    numpy_rows = [row for row in found if row["part"] == "numpy.empty"]
    assert [(row["threads"], row["contestant"]) for row in numpy_rows] == [
        ("1", "NumPy"),
        ("1", "NumpyPool"),
        ("3", "NumPy"),
        ("3", "NumpyPool"),
    ]
    assert all(float(row["requests_per_s"]) > 0 for row in found)
    assert all(float(row["ratio"]) == 1 for row in found if row["contestant"] in ("NumPy", "cheapest"))
