"""Other tools' file formats: what each is, how it is read as a profile, how a plan is written in it. One module each.

=============  =======  =====================  =================================================================
name           suffix   read, written          what
=============  =======  =====================  =================================================================
profile        .profile read and written       stowplan's own (`Profile.save`), nothing lost
minimalloc     .csv     read and written       google/minimalloc's CSV (`stowplan.minimalloc`)
rmm            .csv     read                   `rmm`: the log of RMM
cupy           .jsonl   read                   `cupy_hook`: the log of a CuPy memory hook
torch          .pickle  read and written       `torch_snapshot`: PyTorch's memory snapshot
chrome         .json    written                `chrome_trace`: for Perfetto
=============  =======  =====================  =================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ...errors import FormatError
from ..profile import IntArray, Profile
from . import chrome_trace, cupy_hook, rmm, torch_snapshot

__all__ = ["READ", "SUFFIXES", "WRITTEN", "detect", "format_of", "read", "write"]

READ = ("profile", "minimalloc", "rmm", "cupy", "torch")
WRITTEN = ("profile", "minimalloc", "torch", "chrome")
SUFFIXES = {
    ".profile": "profile",
    ".npz": "profile",
    ".csv": "minimalloc",
    ".pickle": "torch",
    ".pkl": "torch",
    ".json": "chrome",
}

_PLANNED: dict[str, Callable[[str | os.PathLike[str], Profile, IntArray], None]] = {
    "torch": torch_snapshot.write,
    "chrome": chrome_trace.write,
}


def detect(path: str | os.PathLike[str]) -> str:
    """Say which of `READ` a file seems to be, by its first bytes. Whether it is one, reading it will show.

    Raises
    ------
    OSError
        The file cannot be opened.
    """
    with open(path, "rb") as file:
        head = file.read(1 << 10)
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n")[0]
    if head.startswith(b"PK"):
        return "profile"
    if head.startswith(b"\x80"):
        return "torch"
    if line.startswith(b"{"):
        return "cupy"
    return "rmm" if b"Action" in line else "minimalloc"


def read(path: str | os.PathLike[str], form: str | None = None, device: int | None = None) -> Profile:
    """Read a file as a profile.

    Parameters
    ----------
    path
        The file.
    form
        One of `READ`; None: what `detect` says.
    device
        Which device, where the format tells devices apart; None: the only one.

    Raises
    ------
    FormatError
        The file is not what it should be. The message names file, line or entry, and what was expected.
    OSError
        The file cannot be opened.
    """
    form = form or detect(path)
    if form == "torch":
        return torch_snapshot.read(path, device)
    if form == "cupy":
        return cupy_hook.read(path, device)
    return {"profile": Profile.load, "minimalloc": Profile.from_csv, "rmm": rmm.read}[form](path)


def format_of(path: str | os.PathLike[str]) -> str:
    """Return which of `WRITTEN` the suffix of a file to be written stands for.

    Raises
    ------
    FormatError
        None of them.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise FormatError(path, f"the suffix {suffix!r} names no format; expected {', '.join(SUFFIXES)}")
    return SUFFIXES[suffix]


def needs_offsets(form: str) -> bool:
    """Whether a format shows where the blocks lie, so that a plan is needed to write it."""
    return form in _PLANNED


def write(path: str | os.PathLike[str], form: str, profile: Profile, offsets: IntArray | None = None) -> None:
    """Write a profile, atomically.

    Parameters
    ----------
    path
        The file; replaced if it exists.
    form
        One of `WRITTEN`.
    profile
        The step.
    offsets
        Where each block lies in the arena, int64 (n,), -1 for none. Must be given where `needs_offsets`.

    Raises
    ------
    OSError
        The file cannot be written. The old one, if any, is untouched.
    """
    if form in _PLANNED:
        assert offsets is not None
        _PLANNED[form](path, profile, offsets)
    elif form == "minimalloc":
        profile.to_csv(path)
    else:
        profile.save(path)
