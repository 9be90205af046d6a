"""The table of steps without phases, for the smallest graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.any_graph import main

from .tables import rows_of


def test_the_command_writes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pulp")
    monkeypatch.setattr("experiments.any_graph.SEEDS", 2)
    result = CliRunner().invoke(main, ["--out", str(tmp_path), "--most", "16", "--small", "10"])
    assert result.exit_code == 0, result.output
    rows = rows_of(tmp_path / "any_graph.csv")
    assert [row["kind"] for row in rows] == ["layered"] * 4 + ["training"] * 4
    for row in rows:
        assert int(row["peak"]) <= float(row["share"]) * int(row["peak_of"])
    compared = [row for row in rows_of(tmp_path / "any_graph_optimum.csv") if row["proved"] == "True"]
    assert sum(row["optimum"] != "" for row in compared) > 5
    for row in compared:
        assert row["same"] == row["optimum"], "the same problem, and the optimum of it"
        if row["optimum"]:
            assert float(row["any"]) <= 1.02 * float(row["optimum"])
    assert "slower by more than 2 %" in (tmp_path / "any_graph.md").read_text()
