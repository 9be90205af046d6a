"""Option types that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class OutputFile(click.Path):
    """A file to be written. Refused before any work is done where its folder does not exist."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; fail where it could not be written."""
        path = Path(str(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"{path}: there is no folder {path.parent}", param, ctx)
        return path
