"""Programs that know nothing of stowplan print the same with it; what was measured becomes tables and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.measures import peers
from experiments.programs import __main__ as command
from experiments.programs import measure
from experiments.programs.catalogue import NETWORKS, PROGRAMS, SCRIPTS, STARTUP, Program

from .tables import rows_of

OFTEN = ("startup", "jacobi", "autograd_network", "spectra_asyncio", "bootstrap_joblib", "video")
"""Programs that `make test` runs, too: one array, a library's, tasks, threads, blocks of many sizes. It records
others in tests/profiler/recorders/test_programs_live_peak.py."""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=program.name, marks=() if program.name in OFTEN else pytest.mark.slow)
        for program in PROGRAMS
    ],
)
def test_a_program_prints_the_same_through_the_pool(program: Program) -> None:
    missing = program.missing()
    if missing is not None:
        pytest.skip(missing)
    plain, ours = (
        measure.run(program, contestant, {}, [str(program.quick)])
        for contestant in (measure.PLAIN, measure.OURS)
    )
    assert ours.output == plain.output
    assert plain.output
    assert plain.figures == {}
    assert "numpy" in ours.figures


def test_scripts_are_in_the_catalogue_and_do_not_know_stowplan() -> None:
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.py")}
    assert set(scripts) == {program.script.stem for program in (*PROGRAMS, *NETWORKS)}
    assert not [name for name, text in scripts.items() if "stowplan" in text]


def test_one_run_makes_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "available", lambda: {peers.TUNED_GLIBC: peers.VARIABLES})
    absent = Program("absent", "Absent", 1, 10, ("no_such_module",))
    monkeypatch.setattr(command, "PROGRAMS", (STARTUP, absent))
    options = ["--quick", "--out", str(tmp_path)]
    done = CliRunner().invoke(command.main, options)
    assert done.exit_code == 0, done.output
    row, left_out = rows_of(tmp_path / "programs.csv")
    assert (row["best"], row["identical"]) == (peers.TUNED_GLIBC, "True")
    assert "left out" in left_out["note"]
    assert "| start-up: import numpy | 2 |" in (tmp_path / "programs.md").read_text(encoding="utf-8")

    cell = tmp_path / "programs" / "cells" / "startup.json"
    known = json.loads(cell.read_text())
    known["row"]["identical"] = False
    cell.write_text(json.dumps(known))
    done = CliRunner().invoke(command.main, options)  # from the cell
    assert done.exit_code == 1
