"""Versioned files of arrays: NumPy's .npz with a header, no pickle in it.

A leaf below the packages, which share it. Reading trusts nothing: any damage to a file raises one `FormatError`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import FormatError
from .files import atomic_write

_HEADER = "header"


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
        try:
            with np.load(file, allow_pickle=False) as archive:
                columns = {name: archive[name] for name in archive.files}
            header = json.loads(bytes(columns.pop(_HEADER)).decode())
            found = header["format"], header["version"]
        except Exception as error:
            # zipfile, zlib, json and NumPy have a dozen exceptions for a damaged file, RuntimeError among them.
            raise FormatError(path, f"not a {kind} file, or a truncated one ({error})") from None
    if found[0] != kind:
        raise FormatError(path, f"a {found[0]!r} file; expected {kind!r}")
    if found[1] != version:
        raise FormatError(path, f"{kind} version {found[1]!r}; this stowplan reads version {version}")
    return header, columns
