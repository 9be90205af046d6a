"""`stowplan run` reads its own words, with or without Click."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..children import python
from .command_line import refused, stowplan


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prints its words; the current folder is its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.py").write_text("this is no Python")
    path = tmp_path / "script.py"
    path.write_text("import os, sys\nprint(__name__, *sys.argv[1:])\nos.chdir('/')\n")
    return path


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["script.py", "--epochs", "3", "-j"], "__main__ --epochs 3 -j\n"),
        (["--stats", "figures.json", "-m", "script", "a"], "__main__ a\n"),
        (["--auto-step", "--stats=figures.json", "--", "script.py", "-"], "__main__ -\n"),
    ],
)
def test_options_stand_before_the_script(script: Path, words: list[str], printed: str) -> None:
    done = python("-m", "stowplan", "run", *words, folder=script.parent)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    if "figures.json" in " ".join(words):  # where the command was given, whatever the script changes
        assert json.loads((script.parent / "figures.json").read_text())["exit_status"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no SCRIPT; expected: stowplan run [OPTIONS] SCRIPT"),
        (["-m"], "there is no SCRIPT"),
        (["--stats"], "--stats has no value"),
        (["--stats", "no/such/folder/x", "script.py"], "no/such/folder/x: expected a file in a folder"),
        (["--stats", "/", "script.py"], "--stats /: expected a file"),
        (["--bogus", "script.py"], "there is no option --bogus; expected: stowplan run [OPTIONS] SCRIPT"),
        (["--json=x", "script.py"], "there is no option --json=;"),
        (["none.py"], "none.py"),
        (["text.py"], "text.py: invalid syntax"),
        (["--step-function", "main", "script.py"], "expected module:function"),
    ],
)
def test_bad_input_is_one_line(script: Path, words: list[str], said: str) -> None:
    (line,) = refused("run", *words).splitlines()
    assert line.startswith("Error: ")
    assert said in line


def test_help_is_the_command_s_own() -> None:
    assert stowplan("run", "-h").stdout == stowplan("run", "--help").stdout
    assert "--step-function MODULE:FUNCTION" in stowplan("run", "-h").stdout


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
