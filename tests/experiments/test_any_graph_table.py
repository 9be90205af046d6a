"""The table of steps without phases, for the smallest graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.any_graph import main
from experiments.convolutional_graphs import NETWORKS, graph_of

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


def test_networks_have_the_published_multiplications() -> None:
    """In 1e9: K. He et al., *Deep Residual Learning*; A. Howard et al., *MobileNets*."""
    published = {"VGG-16": 15.3, "VGG-19": 19.6, "MobileNet": 0.57, "ResNet-50": 3.8}
    for name, work in published.items():
        assert graph_of(name, trains=False).seconds.sum() == pytest.approx(work, rel=0.025), name
    for name in NETWORKS:
        infers, trains = graph_of(name, trains=False), graph_of(name, trains=True)
        assert len(trains) == 2 * len(infers), name  # each layer but the image goes back, and there is a loss
