"""Versioned files of arrays: NumPy's .npz with a header, no pickle in it.

Reading trusts nothing: any damage to a file raises one `FormatError`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import FormatError
from .files import atomic_write

_HEADER = "header"
_HEAD = 4096  # bytes that tell what a file is
_RECORD = "record the program: stowplan profile SCRIPT"
_JSON = (
    (rb'"format":\s*"stowplan schedule"', "a schedule of stowplan (Schedule.load reads it)"),
    (rb'"format":\s*"opgraph-1"', "a step graph (stowplan schedule, order and pack --graph read it)"),
    (rb'"(traceEvents|displayTimeUnit|deviceProperties)"', f"a Chrome trace ({_RECORD})"),
    (rb'"hook":', f"CuPy's hook log ({_RECORD})"),
)
"""What JSON that holds these bytes seems to be."""


def write_archive(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    header: Mapping[str, Any],
    columns: Mapping[str, npt.NDArray[Any]],
) -> None:
    """Write one file, atomically.

    Parameters
    ----------
    kind, version
        What the file is, for `read_archive` to check.
    header
        Whatever JSON can hold.
    columns
        Arrays by name; no objects.

    Raises
    ------
    OSError
        The file cannot be written. The old one, if any, is untouched.
    """
    text = json.dumps({**header, "format": kind, "version": version})
    arrays: dict[str, Any] = {_HEADER: np.frombuffer(text.encode(), dtype=np.uint8), **columns}
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)


def read_archive(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read what `write_archive` wrote: the header and the columns.

    Raises
    ------
    FormatError
        The file is truncated, of another kind, or of another version.
    OSError
        The file cannot be opened.
    """
    with open(path, "rb") as file:
        head = file.read(_HEAD)
        if not head.startswith(b"PK"):
            raise FormatError(path, f"not a {kind} file, or a truncated one, but {what_it_is(path, head)}")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                columns = {name: archive[name] for name in archive.files}
            header = json.loads(bytes(columns.pop(_HEADER)).decode())
            found = header["format"], header["version"]
        except Exception as error:
            # zipfile, zlib, json and NumPy have a dozen exceptions for a damaged file, RuntimeError among them.
            # Where an entry holds objects, NumPy advises to unpickle them: not from a file of unknown origin.
            reason = "" if "pickle" in str(error) else f" ({error})"
            raise FormatError(path, f"not a {kind} file, or a truncated one{reason}") from None
    if found[0] != kind:
        raise FormatError(path, f"a {found[0]!r} file; expected {kind!r}")
    if found[1] != version:
        raise FormatError(path, f"{kind} version {found[1]!r}; this stowplan reads version {version}")
    return header, columns


def what_it_is(path: str | os.PathLike[str], head: bytes) -> str:
    """Tell what a file that was taken for another one seems to be, by its name and its first bytes."""
    if not head:
        return "an empty file"
    if os.fspath(path).endswith((".py", ".pyw")) or (head.startswith(b"#!") and b"python" in head[:80]):
        return "a Python script (record it first: stowplan profile SCRIPT)"
    if head.startswith(b"\x7fELF"):
        return "a compiled program"
    if head.startswith(b"\x93NUMPY"):
        return "an array of NumPy's"
    if head.startswith(b"\x80"):
        return "a pickle"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return next((what for pattern, what in _JSON if re.search(pattern, head)), "JSON")
    return "a text file" if b"\0" not in head else "a file of no known kind"
