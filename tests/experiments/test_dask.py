"""Dask's computations are what they say; what was measured becomes a table and verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="no Dask; expected: pip install 'stowplan[dask]'")

from click.testing import CliRunner

from experiments.dask import __main__ as command
from experiments.dask import measure
from experiments.measures import peers

from .tables import rows_of


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in peers.CHOOSING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(measure, "contestants", lambda: {measure.PLAIN: {}, measure.OURS: {}})
    arguments = ["--quick", "--computation", "climate", "--out", str(tmp_path)]
    done = CliRunner().invoke(command.main, arguments)
    assert done.exit_code == 0, done.output
    row = json.loads((tmp_path / "dask" / "cells" / "climate.json").read_text())["row"]
    assert row["rounds"] == command.QUICK_ROUNDS
    assert row["replayed"] > 0
    assert row["seconds_plain"] > 0
    (kept,) = rows_of(tmp_path / "dask.csv")
    assert kept["identical"] == "True"
    assert "reductions of a climate" in (tmp_path / "dask.md").read_text()


def test_an_allocator_chosen_for_the_command_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    done = CliRunner().invoke(command.main, ["--quick"])
    assert done.exit_code == 1
    assert "the environment has" in done.output
    assert "MALLOC_TOP_PAD_" in done.output
