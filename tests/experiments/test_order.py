"""The table of orders, for two graphs made here."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from experiments.order import main
from stowplan.scheduling import Phase, StepGraph

from .tables import rows_of


def step(batch: int) -> StepGraph:
    """Four gradients, whose updates stand last in the order recorded, with parameters of 100 bytes."""
    reads = [[]] * 4 + [[i, 4 + i] for i in range(4)]
    writes = [[i] for i in range(4)] + [[]] * 4
    phase = [Phase.BACKWARD] * 4 + [Phase.UPDATE] * 4
    return StepGraph(
        reads, writes, [10 * batch] * 4 + [100] * 4, resident=[False] * 4 + [True] * 4, phase=phase
    )


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    paths = []
    for batch in (1, 32):
        paths.append(str(tmp_path / f"net_b{batch}_train.graph"))
        step(batch).save(paths[-1])
    result = CliRunner().invoke(main, [*paths, "--out", str(tmp_path / "found"), "--repeat", "1"])
    assert result.exit_code == 0, result.output
    rows = rows_of(tmp_path / "found" / "order.csv")
    assert [(row["graph"], row["before"], row["peak"]) for row in rows] == [
        ("net_b1_train", "40", "10"),
        ("net_b32_train", "1280", "320"),
    ]
    text = (tmp_path / "found" / "order.md").read_text()
    assert "2 of 2 proved" in text
    assert "| 32 | 1 | 75.0% | 75.0% | " in text
