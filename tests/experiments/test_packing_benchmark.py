"""The benchmark's one command, on a machine without the shared data."""

import subprocess
import sys
from pathlib import Path

from .tables import rows_of

ROOT = Path(__file__).resolve().parents[2]


def test_one_command_writes_a_csv_and_a_table(tmp_path):
    command = [
        sys.executable,
        "-m",
        "experiments.packing.benchmark",
        "--data",
        tmp_path / "none",
        "--out",
        tmp_path,
    ]
    options = ["--largest", "1000", "--only", "best_fit", "--only", "auto"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "is not there: generated problems only" in done.stderr
    rows = rows_of(tmp_path / "benchmark.csv")
    assert {row["solver"] for row in rows} == {"best_fit", "auto"}
    assert {row["problem"] for row in rows} >= {"alexnet", "googlenet", "n = 1000"}
    assert all(float(row["ratio"]) >= 1 for row in rows)
    assert (tmp_path / "benchmark.md").read_text().startswith("| problem | n | best_fit | auto |")
