r"""Packing with a store: what is there is validated and taken, what is not is packed and kept.

The bytes of a placement, n blocks::

    stowplan plan 1\n                 what it is
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
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .._version import __version__
from ..errors import ConflictError, ProblemError
from ..packing import Placement, Problem, lower_bound, pack
from ..packing.check import check_fast
from ..packing.placement import peak_of
from ..packing.problem import IntArray
from .store import DamagedError, PlanStore

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
    return sealed(key, placement, {}, [placement.offsets])


def sealed(key: str, placement: Placement, known: dict[str, int], columns: Sequence[IntArray]) -> bytes:
    """Return bytes that `opened` reads: of the columns, and in the header what is known beside the placement."""
    header = {
        "key": key,
        "stowplan": __version__,
        "solver": placement.solver,
        "blocks": len(placement.offsets),
        "peak": placement.peak,
        "lower_bound": placement.lower_bound,
        **known,
    }
    body = MAGIC + json.dumps(header).encode() + b"\n"
    body += b"".join(column.astype("<i8", copy=False).tobytes() for column in columns)
    return body + _digest(body)


def opened(data: bytes, key: str) -> tuple[dict[str, Any], IntArray]:
    """Return the header, with a ``solver`` and ``blocks`` in it at least, and the numbers of all columns.

    Raises
    ------
    DamagedError
        The bytes are something else, of another version, torn, or kept under another key.
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
        expected = {"key": str, "solver": str, "blocks": int, "peak": int, "lower_bound": int}
        sound = line > 0 and all(type(header[name]) is kind for name, kind in expected.items())
    except (ValueError, TypeError, LookupError, RecursionError):
        sound = False
    if not sound:
        raise DamagedError("its header is not valid")
    if header["key"] != key:
        raise DamagedError("made for another problem: its key is another one")
    return header, numbers


def decode(data: bytes, key: str, problem: Problem) -> Placement:
    """Return the placement of a problem; validated, whoever wrote the bytes.

    Raises
    ------
    DamagedError
        The bytes are not a valid placement of this problem.
    """
    header, offsets = opened(data, key)
    return validated(problem, offsets, header["solver"])


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
    most = int(problem.fixed.max(initial=0)) + int((problem.size + problem.alignment).sum())
    if peak > most:
        raise DamagedError(f"it needs {peak} bytes; expected {most} at most, all blocks one above the other")
    offsets.flags.writeable = False
    status: Literal["optimal", "feasible"] = "optimal" if peak == bound else "feasible"
    return Placement(offsets, peak, bound, solver, 0.0, status, "the lower bound, computed again")


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
            store.keep(key, encode(key, placement))
        except Exception as error:
            warn_once(f"{store.where(key)}: cannot be kept: {error}")
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
            warn_once(f"{store.where(key)} is refused, and packed again: {error}")
        except Exception as error:
            warn_once(f"{store.where(key)} cannot be asked for: {error}")
        return None


_told: set[str] = set()


def warn_once(text: str) -> None:
    """Warn once; a plan is an optimization."""
    if text not in _told:
        _told.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()
