"""The table of steps without phases, for the smallest graphs."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from experiments.any_graph import main

from .tables import rows_of


def test_the_command_writes_its_files(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--out", str(tmp_path), "--most", "16"])
    assert result.exit_code == 0, result.output
    rows = rows_of(tmp_path / "any_graph.csv")
    assert [row["kind"] for row in rows] == ["layered"] * 4 + ["training"] * 4
    for row in rows:
        assert int(row["peak"]) <= float(row["share"]) * int(row["peak_of"])
    assert "extra time" in (tmp_path / "any_graph.md").read_text()
