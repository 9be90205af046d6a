"""google/minimalloc's CSV, a row for each block: see `stowplan.minimalloc`, `Profile.from_csv` and `Profile.to_csv`."""

from __future__ import annotations

from ... import minimalloc
from ..profile import Profile
from .registry import Format, register
from .text import first_line


def _recognizes(head: bytes) -> bool:
    return any(cell.strip(' "') in minimalloc.SPELLINGS for cell in first_line(head).split(","))


register(
    Format(
        "minimalloc",
        "a problem in google/minimalloc's CSV",
        suffixes=(".csv",),
        recognizes=_recognizes,
        read=lambda path, device: Profile.from_csv(path),
        write=lambda path, profile, offsets: profile.to_csv(path),
    )
)
