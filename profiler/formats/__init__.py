"""Read other tools' files as profiles, and write profiles and plans for other tools.

Each format is a module of its own, which tells what the format is, and registers it (see `registry`). All modules of
this folder are imported here, so a new one needs no other line. ``stowplan convert --help`` lists the formats.

`event_log` turns a log of allocations and frees into a profile; `text` and `safe_pickle` read files that nothing is
known of.
"""

from __future__ import annotations

import os
import pkgutil
from importlib import import_module
from pathlib import Path

import numpy as np

from ...common.archive import what_it_is
from ...common.errors import FormatError
from ..events import IntArray
from ..profile import Profile
from .registry import HEAD, Format, register, registered

__all__ = ["Format", "detect", "format_of", "needs_offsets", "read", "register", "registered", "write"]

_REMOVED = {
    "chrome": "torch, which shows the plan at pytorch.org/memory_viz, or stowplan report",
    "cupy": "a profile: stowplan profile records what CuPy allocates",
}

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def detect(path: str | os.PathLike[str]) -> str:
    """Return the name of the format that a file seems to have, by its first bytes; only reading it shows if it does.

    Raises
    ------
    FormatError
        No format recognizes it. The message lists those that are known.
    OSError
        The file cannot be opened.
    """
    with open(path, "rb") as file:
        head = file.read(HEAD)
    for form in registered():
        if form.recognizes is not None and form.recognizes(head):
            return form.name
    known = ", ".join(f"{form.name} ({form.what})" for form in registered() if form.read is not None)
    raise FormatError(path, f"{what_it_is(path, head)}, of no format that can be read; expected {known}")


def read(path: str | os.PathLike[str], name: str | None = None, device: int | None = None) -> Profile:
    """Read a file as a profile.

    Parameters
    ----------
    path
        The file.
    name
        The name of its format; None: what `detect` finds.
    device
        Which device, if the format tells devices apart; None: the only one.

    Raises
    ------
    FormatError
        The file is not what it should be; the message names file, line or entry, and what was expected. Or there is no
        format of this name that can be read.
    OSError
        The file cannot be opened.
    """
    name = name or detect(path)
    readers = {form.name: form.read for form in registered() if form.read is not None}
    if name not in readers:
        raise _unknown(path, name, "read", tuple(readers))
    return readers[name](path, device)


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the format that the suffix of a file to be written stands for.

    Raises
    ------
    FormatError
        It stands for none.
    """
    names = {suffix: form.name for form in registered() for suffix in form.suffixes}
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        raise _unknown(path, "chrome", "written", ())
    if suffix not in names:
        raise FormatError(path, f"the suffix {suffix!r} names no format; expected {', '.join(sorted(names))}")
    return names[suffix]


def needs_offsets(name: str) -> bool:
    """Whether a format shows where the blocks lie, so that a plan is needed to write it."""
    return any(form.shows_plan for form in registered() if form.name == name)


def write(path: str | os.PathLike[str], name: str, profile: Profile, offsets: IntArray | None = None) -> None:
    """Write a profile, atomically.

    Parameters
    ----------
    path
        The file; replaced if it exists.
    name
        The name of a format.
    profile
        The step.
    offsets
        Where each block lies in the arena, int64 (n,), -1 for blocks that are not planned. Required if `needs_offsets`.

    Raises
    ------
    FormatError
        There is no format of this name that can be written.
    OSError
        The file cannot be written. The old one, if any, is untouched.
    """
    writers = {form.name: form.write for form in registered() if form.write is not None}
    if name not in writers:
        raise _unknown(path, name, "written", tuple(writers))
    assert offsets is not None or not needs_offsets(name)
    writers[name](path, profile, np.full(len(profile), -1) if offsets is None else offsets)


def _unknown(path: str | os.PathLike[str], name: str, done: str, known: tuple[str, ...]) -> FormatError:
    if name in _REMOVED:
        return FormatError(path, f"the format {name!r} was removed; expected {_REMOVED[name]}")
    return FormatError(path, f"no format {name!r} that can be {done}; expected {', '.join(known)}")
