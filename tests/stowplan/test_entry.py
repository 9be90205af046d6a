"""The short way into `stowplan run` understands what the command line understands, or leaves it to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.cli.commands.run import run
from stowplan.cli.entry import plain_run

from ..children import python
from .command_line import refused


@pytest.mark.parametrize(
    "words",
    [
        ["train.py"],
        ["train.py", "--epochs", "3", "-j"],
        ["-m", "package.module", "a"],
        ["--json", "-m", "package", "x"],
        ["--stats", "figures.json", "train.py", "b"],
        ["-", "--state"],
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
        ["run", "train.py", "--json"],
        ["run", "train.py", "--stats=x"],
        ["--version"],
    ],
)
def test_the_rest_is_the_command_line_s(words: list[str]) -> None:
    assert plain_run(words) is None


@pytest.mark.parametrize("options", [[], ["--step-function", "__main__:none"]])
def test_bad_input_is_one_line_either_way(options: list[str], tmp_path: Path) -> None:
    done = python("-m", "stowplan", "run", *options, tmp_path / "none.py")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "none.py" in line


@pytest.mark.parametrize("command", ["run", "profile"])
def test_an_option_that_there_is_not_is_no_script(command: str) -> None:
    assert "No such option '--bogus'" in refused(command, "--bogus", "train.py")


@pytest.mark.parametrize("command", ["run", "profile"])
def test_our_options_after_the_script_are_said(command: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(*sys.argv[1:])\n")
    ours = ["-o", str(tmp_path / "step.profile")] if command == "profile" else []
    words = ["-m", "stowplan", command, *ours, str(script), "--epochs", "3", "--step-function=x", "-m"]
    done = python(*words)
    assert done.stdout == "--epochs 3 --step-function=x -m\n"
    said = [line for line in done.stderr.splitlines() if "stands after SCRIPT" in line]
    assert [line.split()[1] for line in said] == ["--step-function", "-m"]
