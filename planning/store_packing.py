r"""Placements as the bytes that a store keeps: written, and validated when they are read.

The bytes of a placement, n blocks::

    stowplan placement 1\n            what it is
    {"key": ..., "solver": ...}\n     one line of JSON
    n offsets                         int64, little endian
    16 bytes                          BLAKE2b of all before it: what was torn is seen before it is looked at

The key is BLAKE2b of the problem's columns, the solver's name, and the versions. Nothing in the bytes is trusted: the
offsets go through packing's validator, as those of a solver do, and a placement that needs more than all blocks one
above the other is refused; peak and lower bound are computed again. O(n log n).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

import numpy as np

from .._version import __version__
from ..errors import ConflictError, ProblemError
from ..packing import Placement, Problem, lower_bound
from ..packing.check import check_fast
from ..packing.placement import peak_of
from .store import DamagedError

VERSION = 1
MAGIC = b"stowplan placement %d\n" % VERSION
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


def encode(key: str, problem: Problem, placement: Placement) -> bytes:
    """Return the bytes of a placement."""
    header = {
        "key": key,
        "stowplan": __version__,
        "solver": placement.solver,
        "blocks": len(problem),
        "peak": placement.peak,
        "lower_bound": placement.lower_bound,
        "seconds": round(placement.seconds, 6),
    }
    body = MAGIC + json.dumps(header).encode() + b"\n" + placement.offsets.astype("<i8", copy=False).tobytes()
    return body + _digest(body)


def read_header(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the bytes of the offsets.

    Raises
    ------
    DamagedError
        The bytes are no placement, of another version, or torn.
    """
    if not data.startswith(MAGIC):
        raise DamagedError(
            "not a placement, or one of another version; expected it to begin with "
            f"{MAGIC.decode().strip()!r}"
        )
    if _digest(data[:-DIGEST]) != data[-DIGEST:]:
        raise DamagedError("torn or changed: its digest is another one")
    line = data.find(b"\n", len(MAGIC), -DIGEST)
    try:
        header = json.loads(data[len(MAGIC) : line])
        sound = line > 0 and all(
            isinstance(header[name], kind) and not isinstance(header[name], bool)
            for name, kind in (
                ("key", str),
                ("solver", str),
                ("blocks", int),
                ("peak", int),
                ("lower_bound", int),
            )
        )
    except (ValueError, TypeError, LookupError, RecursionError):
        sound = False
    if not sound:
        raise DamagedError("its header is not valid")
    return header, memoryview(data)[line + 1 : -DIGEST]


def decode(data: bytes, key: str, problem: Problem) -> Placement:
    """Return the placement of a problem; validated, whoever wrote the bytes.

    Raises
    ------
    DamagedError
        The bytes are not a valid placement of this problem.
    """
    header, rest = read_header(data)
    if header["key"] != key:
        raise DamagedError("made for another problem: its key is another one")
    if len(rest) != 8 * len(problem):
        raise DamagedError(f"{len(rest)} bytes of offsets; expected {8 * len(problem)}")
    offsets = np.frombuffer(rest, dtype="<i8").astype(np.int64)
    try:
        check_fast(problem, offsets)
    except (ConflictError, ProblemError) as error:
        raise DamagedError(f"not valid: {error}") from None
    peak, bound = peak_of(problem, offsets), lower_bound(problem)
    most = int(problem.fixed.max(initial=0)) + int((problem.size + problem.alignment).sum())
    if peak > most:
        raise DamagedError(f"it needs {peak} bytes; expected {most} at most, all blocks one above the other")
    offsets.flags.writeable = False
    status: Literal["optimal", "feasible"] = "optimal" if peak == bound else "feasible"
    why = "the lower bound, computed again"
    return Placement(offsets, peak, bound, header["solver"], 0.0, status, why)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()
