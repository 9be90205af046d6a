"""Runs an experiment, and reads the tables that it writes."""

from __future__ import annotations

import csv
from pathlib import Path

import click
from click.testing import CliRunner


def run(command: click.Command, out: Path, *options: str) -> None:
    done = CliRunner().invoke(command, ["--out", str(out), *options])
    assert done.exit_code == 0, done.output


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
