"""Rows of a table, each in a file as soon as it is measured, so that a run that is cut loses none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click

from ..measures.kept import Row, write_text


class Kept:
    """The rows of a model."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.rows: list[Row] = json.loads(path.read_text()) if path.exists() else []

    def add(self, way: str, setting: float | None, make: Callable[[], Row]) -> Row:
        """Return the row of a way to train under a setting, made unless it is there."""
        key = {"way": way, "setting": setting}
        found = next((row for row in self.rows if row | key == row), None)
        if found is None:
            found = key | make()
            self.rows.append(found)
            write_text(json.dumps(self.rows), self.path)
            click.echo(f"{self.name}: {found}", err=True)
        return found
