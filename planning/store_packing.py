r"""Packing with a store: what is there is validated and taken, what is not is packed and kept.

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
import warnings
from typing import Any, Literal

import numpy as np

from .._version import __version__
from ..errors import ConflictError, ProblemError
from ..packing import Placement, Problem, lower_bound, pack
from ..packing.check import check_fast
from ..packing.placement import peak_of
from .store import DamagedError, PlanStore

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


class Packer:
    """Packs what the store does not have.

    Parameters
    ----------
    store
        None: everything is packed.

    Attributes
    ----------
    packed
        Problems that were packed.
    """

    def __init__(self, store: PlanStore | None) -> None:
        self._store = store
        self.packed = 0

    def __call__(self, problem: Problem, solver: str) -> Placement:
        """Return the placement that the store has, or pack it and keep it there.

        Raises
        ------
        StowplanError
            The solver fails.
        """
        store = self._store
        if store is None or problem.constrained:
            return self._pack(problem, solver)
        key = key_of(problem, solver)
        found = self._found(store, key, problem)
        if found is not None:
            return found
        placement = self._pack(problem, solver)
        try:
            store.keep(key, encode(key, problem, placement))
        except Exception as error:
            _warn(f"{store.where(key)}: cannot be kept: {error}")
        return placement

    def _pack(self, problem: Problem, solver: str) -> Placement:
        placement = pack(
            problem, solver
        )  # wishes that contradict each other are refused before anything is packed
        self.packed += 1
        return placement

    def _found(self, store: PlanStore, key: str, problem: Problem) -> Placement | None:
        try:
            data = store.find(key)
            return None if data is None else decode(data, key, problem)
        except DamagedError as error:
            _warn(f"{store.where(key)} is refused, and packed again: {error}")
        except Exception as error:
            _warn(f"{store.where(key)} cannot be asked for: {error}")
        return None


_told: set[str] = set()


def _warn(text: str) -> None:
    """Warn once; a plan is an optimization."""
    if text not in _told:
        _told.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()
