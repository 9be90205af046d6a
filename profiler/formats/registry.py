"""The registry of file formats. A new format is one module of this folder that calls `register`.

::

    register(Format("rmm", "the log of RMM (CSV)", recognizes=_recognizes, read=_read))

A file is read in the format whose `recognizes` accepts its first bytes, and written in the format that owns its suffix.
No two formats may accept the same bytes; a test holds them to that with a sample of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ..events import IntArray
from ..profile import Profile

Path = str | os.PathLike[str]
Reader = Callable[[Path, int | None], Profile]
"""Takes the file, and the device whose blocks to read (None: the only one; formats without devices ignore it)."""
Writer = Callable[[Path, Profile, IntArray], None]
"""Takes the file, the profile, and where each block lies in the arena, int64 (n,): -1 for unplanned blocks."""

HEAD = 1 << 10
"""Bytes at the beginning of a file that `Format.recognizes` is given."""


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes
    ----------
    name
        For commands.
    what
        What its files are, in a few words.
    suffixes
        Suffixes of files to be written in it, lower case, with the dot.
    recognizes
        Whether the first ``HEAD`` bytes of a file look like this format; None if it is not read.
    read
        Reads a file as the profile of one step; raises `.FormatError`, or `OSError` if it cannot be opened.
    write
        Writes a file atomically; None if the format is not written.
    shows_plan
        Whether files show where the blocks lie, so that a plan is needed to write them.
    """

    name: str
    what: str
    suffixes: tuple[str, ...] = ()
    recognizes: Callable[[bytes], bool] | None = None
    read: Reader | None = None
    write: Writer | None = None
    shows_plan: bool = False


_formats: dict[str, Format] = {}


def register(form: Format) -> None:
    """Add a format, or replace the one of this name."""
    _formats[form.name] = form


def registered() -> tuple[Format, ...]:
    """Return all formats, by name."""
    return tuple(_formats[name] for name in sorted(_formats))
