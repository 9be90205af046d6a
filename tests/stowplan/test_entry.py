"""The short way into `stowplan run` understands what the command line understands, or leaves it to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stowplan.cli.commands.run import run
from stowplan.cli.entry import plain_run


@pytest.mark.parametrize(
    "words",
    [
        ["train.py"],
        ["train.py", "--epochs", "3", "-m", "--json"],
        ["-m", "package.module", "a"],
        ["--json", "-m", "package", "--stats", "x"],
        ["--stats", "figures.json", "train.py", "b"],
        ["-", "--stats"],
    ],
)
def test_what_it_takes_the_command_line_takes_in_the_same_way(words: list[str]) -> None:
    plain = plain_run(["run", *words])
    assert plain is not None
    known = run.make_context("run", list(words)).params
    assert (plain["target"], tuple(plain["arguments"])) == (known["script"], known["arguments"])
    assert (plain["module"], plain["as_json"]) == (known["module"], known["as_json"])
    assert plain["stats"] == (None if known["stats"] is None else str(Path(known["stats"]).absolute()))
    assert known["step_function"] is None


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["show", "x"],
        ["run"],
        ["run", "--help"],
        ["run", "-m"],
        ["run", "--stats"],
        ["run", "--stats", "no/such/folder/x", "train.py"],
        ["run", "--stats=x", "train.py"],
        ["run", "--step-function", "train:step", "train.py"],
        ["run", "--", "train.py"],
        ["--version"],
    ],
)
def test_the_rest_is_the_command_line_s(words: list[str]) -> None:
    assert plain_run(words) is None


@pytest.mark.parametrize("options", [[], ["--step-function", "__main__:none"]])
def test_bad_input_is_one_line_either_way(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stowplan", "run", *options, str(tmp_path / "none.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "none.py" in line
