"""The table of steps without phases, for the smallest graphs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.any_graph import main


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    pytest.importorskip("pulp")
    result = CliRunner().invoke(main, ["--folder", str(tmp_path), "--most", "16", "--time-limit", "30"])
    assert result.exit_code == 0, result.output
    with open(tmp_path / "any_graph.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows] == ["layered"] * 4 + ["training"] * 4
    for row in rows:
        assert int(row["peak"]) <= float(row["share"]) * int(row["peak_of"])
        if row["of"] == "best":
            assert 0 < float(row["extra"]) <= float(row["optimum"]) + 1e-9, (
                "it may reorder, the optimum may not"
            )
    assert "| training | 16 | best | 0.9 |" in (tmp_path / "any_graph.md").read_text()
