"""The table of steps without phases, for the smallest graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.any_graph import main
from experiments.convolutional_graphs import NETWORKS, graph_of

from .tables import rows_of


def test_the_command_writes_its_files(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--out", str(tmp_path), "--most", "16"])
    assert result.exit_code == 0, result.output
    rows = rows_of(tmp_path / "any_graph.csv")
    assert [row["kind"] for row in rows] == ["layered"] * 4 + ["training"] * 4
    for row in rows:
        assert int(row["peak"]) <= float(row["share"]) * int(row["peak_of"])
    assert "extra time" in (tmp_path / "any_graph.md").read_text()


def test_networks_have_the_published_multiplications() -> None:
    """In 1e9: K. He et al., *Deep Residual Learning*; A. Howard et al., *MobileNets*."""
    published = {"VGG-16": 15.3, "VGG-19": 19.6, "MobileNet": 0.57, "ResNet-50": 3.8}
    for name, work in published.items():
        assert graph_of(name, trains=False).seconds.sum() == pytest.approx(work, rel=0.025), name
    for name in NETWORKS:
        infers, trains = graph_of(name, trains=False), graph_of(name, trains=True)
        assert len(trains) == 2 * len(infers), name  # each layer but the image goes back, and there is a loss
