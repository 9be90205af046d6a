"""The command line in this process, through click; `tests.children.stowplan` runs it as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from stowplan.cli.main import main


def piped(*arguments: object, folder: Path) -> str:
    """Run the command in a folder, and return what it prints into a pipe."""
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    words = [sys.executable, "-m", "stowplan", *map(str, arguments)]
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=True)
    return done.stdout


def stowplan(*arguments: object, columns: int = 80) -> Result:
    """Run a command on a terminal of some columns; what it raises, but for its exit, is raised here."""
    runner = CliRunner(env={"COLUMNS": str(columns)})
    return runner.invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def figures(*arguments: object, status: int | None = 0) -> dict[str, Any]:
    """Return the JSON object that is all that a command prints; ``status``: its exit status, None if any is right."""
    result = stowplan(*arguments, "--json")
    assert status is None or result.exit_code == status, result.output
    assert result.stderr == ""
    return dict(json.loads(result.stdout))


def refused(*arguments: object) -> str:
    """Return what a command says of bad input; it prints nothing."""
    result = stowplan(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr
