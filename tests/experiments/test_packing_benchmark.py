"""The benchmark's one command, on a machine without the shared data."""

from ..children import python
from .tables import rows_of


def test_one_command_writes_a_csv_and_a_table(tmp_path):
    options = ["--data", tmp_path / "none", "--out", tmp_path, "--largest", 1000]
    done = python("-m", "experiments.packing.benchmark", *options, "--only", "best_fit", "--only", "auto")
    assert "is not there: generated problems only" in done.stderr
    rows = rows_of(tmp_path / "benchmark.csv")
    assert {row["solver"] for row in rows} == {"best_fit", "auto"}
    assert {row["problem"] for row in rows} >= {"alexnet", "googlenet", "n = 1000"}
    assert all(float(row["ratio"]) >= 1 for row in rows)
    assert (tmp_path / "benchmark.md").read_text().startswith("| problem | n | best_fit | auto |")
