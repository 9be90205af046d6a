"""Results kept as files, so that a command goes on where it was interrupted: ``{"study": {...}, "row": {...}}`` each.

The file names the options under ``"study"``; what was found with other ones is found again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stowplan.common.files import atomic_write

Row = dict[str, Any]


def finished(path: Path, study: Mapping[str, Any], find: Callable[[], Row]) -> Row:
    """Return the row kept in a file for the same study, or find it and keep it."""
    row = known(path, study)
    if row is None:
        row = find()
        write_text(json.dumps({"study": study, "row": row}, indent=1), path)
    return row


def write_text(text: str, path: Path) -> None:
    """Write a file, atomically, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(text.encode())


def known(path: Path, study: Mapping[str, Any]) -> Row | None:
    """Return the row kept in a file for the same study; None if there is none."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return dict(kept["row"]) if kept["study"] == study else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there, or not one of ours
