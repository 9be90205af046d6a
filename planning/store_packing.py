r"""Placements as the bytes that a store keeps: written, and validated when they are read.

The bytes of a placement, n blocks::

    stowplan plan 1\n                 what it is
    {"key": ..., "solver": ...}\n     one line of JSON
    n offsets                         int64, little endian
    16 bytes                          BLAKE2b of all before it: what was torn is seen before it is looked at

A file of whole plans (saved.py) has the same form, with other columns.

The key is BLAKE2b of the problem's columns, the solver's name, and the versions. Nothing in the bytes is trusted: the
offsets go through packing's validator, as those of a solver do, and a placement that needs more than all blocks one
above the other is refused; peak and lower bound are computed again. O(n log n).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .._version import __version__
from ..errors import ConflictError, ProblemError
from ..packing import Placement, Problem, lower_bound
from ..packing.check import check_fast
from ..packing.placement import peak_of
from ..packing.problem import IntArray
from .store import DamagedError

VERSION = 1
MAGIC = b"stowplan plan %d\n" % VERSION
DIGEST = 16

COLUMNS = ("size", "start", "end", "gaps", "alignment", "fixed")
"""Of a problem; plans have no blocks that are tied to each other."""


def key_of(problem: Problem, solver: str) -> str:
    """Return what a placement depends on, in 64 hexadecimal digits. O(n), without the GIL."""
    known = hashlib.blake2b(f"{VERSION} {__version__} {solver} {len(problem)}\n".encode(), digest_size=32)
    for name in COLUMNS:
        column = getattr(problem, name)
        known.update(f"{name} {column.shape}\n".encode())
        known.update(column.astype("<i8", copy=False).tobytes())
    return known.hexdigest()


def encode(key: str, placement: Placement) -> bytes:
    """Return the bytes of a placement."""
    header = {
        "key": key,
        "solver": placement.solver,
        "blocks": len(placement.offsets),
        "peak": placement.peak,
        "lower_bound": placement.lower_bound,
    }
    return sealed(header, [placement.offsets])


def sealed(header: dict[str, Any], columns: Sequence[IntArray]) -> bytes:
    """Return bytes that `opened` reads: of a header that JSON can hold, and of the columns one after the other."""
    body = MAGIC + json.dumps({"stowplan": __version__, **header}).encode() + b"\n"
    body += b"".join(column.astype("<i8", copy=False).tobytes() for column in columns)
    return body + _digest(body)


def opened(data: bytes) -> tuple[dict[str, Any], IntArray]:
    """Return the header, and the numbers of all columns.

    Raises
    ------
    DamagedError
        The bytes are something else, of another version, or torn.
    """
    if not data.startswith(MAGIC):
        raise DamagedError(
            f"not a plan, or one of another version; expected it to begin with {MAGIC.decode().strip()!r}"
        )
    if _digest(data[:-DIGEST]) != data[-DIGEST:]:
        raise DamagedError("torn or changed: its digest is another one")
    line = data.find(b"\n", len(MAGIC), -DIGEST)
    try:
        header = json.loads(data[len(MAGIC) : line])
        numbers = np.frombuffer(data[line + 1 : -DIGEST], dtype="<i8").astype(np.int64)
    except (ValueError, RecursionError):
        header = None
    if line < 0 or not isinstance(header, dict):
        raise DamagedError("its header is not valid")
    return header, numbers


def opened_placement(data: bytes, key: str) -> tuple[dict[str, Any], IntArray]:
    """Return the header of a placement, with all that `encode` writes, and its offsets.

    Raises
    ------
    DamagedError
        The bytes are no placement, or one that was kept under another key.
    """
    header, offsets = opened(data)
    expected = {"key": str, "solver": str, "blocks": int, "peak": int, "lower_bound": int}
    if any(type(header.get(name)) is not kind for name, kind in expected.items()):
        raise DamagedError("its header is not valid")
    if header["key"] != key:
        raise DamagedError("made for another problem: its key is another one")
    return header, offsets


def decode(data: bytes, key: str, problem: Problem) -> Placement:
    """Return the placement of a problem; validated, for anybody may have written the bytes.

    Raises
    ------
    DamagedError
        The bytes are not a valid placement of this problem.
    """
    header, offsets = opened_placement(data, key)
    placement = validated(problem, offsets, header["solver"])
    most = int(problem.fixed.max(initial=0)) + int((problem.size + problem.alignment).sum())
    if placement.peak > most:
        raise DamagedError(
            f"it needs {placement.peak} bytes; expected {most} at most, all blocks one above the other"
        )
    return placement


def validated(problem: Problem, offsets: IntArray, solver: str) -> Placement:
    """Return offsets as the placement of a problem.

    Raises
    ------
    DamagedError
        They are not a valid placement of this problem.
    """
    if len(offsets) != len(problem):
        raise DamagedError(f"{len(offsets)} offsets; expected {len(problem)}")
    try:
        check_fast(problem, offsets)
    except (ConflictError, ProblemError) as error:
        raise DamagedError(f"not valid: {error}") from None
    peak, bound = peak_of(problem, offsets), lower_bound(problem)
    offsets.flags.writeable = False
    status: Literal["optimal", "feasible"] = "optimal" if peak == bound else "feasible"
    return Placement(offsets, peak, bound, solver, 0.0, status, "the lower bound, computed again")


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()
