r"""Plans in a file, so that a second run of a program needs no warm-up.

The bytes of the file::

    stowplan plan 1\n                 what it is
    {"backend": ..., "plans": ...}\n  one line of JSON
    columns                           int64, little endian
    16 bytes                          BLAKE2b of all before it: what was torn is seen before it is looked at

For each plan, of n requests and k planned blocks, there are the columns of its profile, n numbers each, and then k
offsets; the header has what belongs to them, and which lane has which plan.

The header tells for which backend and alignment the plans were made. Nothing else in it is trusted: every placement is
validated again when it is read, so a damaged or foreign file cannot make two blocks overlap, and replay checks every
request as it would with a plan of its own making.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .._version import __version__
from ..common.errors import ConflictError, FormatError, PoolError
from ..common.files import atomic_write
from ..packing import Placement, Problem, lower_bound
from ..packing.check import check_fast
from ..packing.placement import peak_of
from ..packing.problem import IntArray
from ..profiler import Profile
from ..profiler.profile import COLUMNS
from ..profiler.steps import MOST_TURNS
from .plan import Plan, problem_of

MAGIC = b"stowplan plan 1\n"
DIGEST = 16
MOST = np.iinfo(np.int64).max
MOST_LANES = 8
"""Lanes of a step slot (allocator/core/lanes/lanes.hpp)."""


@dataclass(frozen=True)
class SavedPlan:
    """A plan, with its step slot, the place of its lane among those of the step slot, and its step's key."""

    step_slot: int
    lane: int
    key: Hashable
    plan: Plan


def save_plans(
    path: str | os.PathLike[str], plans: Iterable[SavedPlan], backend: str, alignment: int, small: int
) -> None:
    """Write plans with their step slots, lanes and step keys, atomically; one that several lanes have, once.

    Parameters
    ----------
    backend
        For what the plans are, in words: ``"numpy"``, or a device's name.
    alignment
        Bytes; of all their offsets.
    small
        Bytes; smaller requests are not among the planned ones, whatever they are.

    Raises
    ------
    PoolError
        A step key is neither None nor a string nor an integer.
    OSError
        The file cannot be written. The old one, if any, is untouched.
    """
    lanes: list[dict[str, Any]] = []
    numbers: dict[Plan, int] = {}
    for saved in plans:
        if saved.key is not None and not isinstance(saved.key, (str, int)):
            raise PoolError(
                f"the step key {saved.key!r} cannot be saved; expected None, a string or an integer"
            )
        number = numbers.setdefault(saved.plan, len(numbers))
        lanes.append({"step_slot": saved.step_slot, "lane": saved.lane, "key": saved.key, "plan": number})
    header = {
        "backend": backend,
        "alignment": alignment,
        "small": small,
        "plans": [
            {
                "requests": len(plan.profile),
                "period": plan.profile.period,
                "steps": plan.steps,
                "solver": plan.placement.solver,
            }
            for plan in numbers
        ],
        "lanes": lanes,
    }
    columns: list[IntArray] = []
    for plan in numbers:
        columns += [getattr(plan.profile, name) for name in COLUMNS] + [plan.placement.offsets]
    with atomic_write(path) as file:
        file.write(_sealed(header, columns))


def load_plans(path: str | os.PathLike[str], backend: str, alignment: int) -> tuple[list[SavedPlan], int]:
    """Read what `save_plans` wrote, and validate it; return the plans, and below which size requests are not planned.

    Raises
    ------
    FormatError
        The file is truncated or foreign, made for another backend or alignment, or a plan in it is not valid.
    OSError
        The file cannot be opened.
    """
    try:
        header, numbers = _opened(Path(path).read_bytes())
    except ValueError as error:
        raise FormatError(path, str(error)) from None
    for name, expected in (("backend", backend), ("alignment", alignment)):
        if header.get(name) != expected:
            raise FormatError(path, f"made for the {name} {header.get(name)!r}; expected {expected!r}")
    plans: list[Plan] = []
    what = "the header"
    try:
        small = _whole(header, "small")
        for i, entry in enumerate(header["plans"]):
            what = f"plan {i}"
            plan, numbers = _next_plan(entry, numbers, alignment)
            plans.append(plan)
        what = "the list of lanes"
        saved = [_in_lane(entry, plans) for entry in header["lanes"]]
    except (ConflictError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(path, f"{what} is not valid: {error}") from None
    return saved, small


def _next_plan(entry: dict[str, Any], numbers: IntArray, alignment: int) -> tuple[Plan, IntArray]:
    """Return the plan with which the numbers begin, and the numbers behind it.

    Raises
    ------
    ConflictError, LookupError, TypeError, ValueError, OverflowError
        The entry is not valid; `ProfileError` and `ProblemError` are ValueErrors.
    """
    requests, period, steps = (_whole(entry, name) for name in ("requests", "period", "steps"))
    if requests * len(COLUMNS) > len(numbers):
        raise ValueError(f"{requests} requests, and {len(numbers)} numbers")
    if not 1 <= steps <= MOST_TURNS or requests % steps:
        raise ValueError(f"{requests} requests of {steps} steps")
    columns, rest = np.split(numbers, [requests * len(COLUMNS)])
    by_name: dict[str, Any] = dict(zip(COLUMNS, columns.reshape(len(COLUMNS), requests), strict=True))
    profile = Profile(**by_name, period=period)
    problem, rows = problem_of(profile, alignment)
    placement = _validated(problem, rest[: len(rows)].copy(), str(entry["solver"]))
    return Plan(profile, rows, problem, placement, steps), rest[len(rows) :]


def _whole(entry: dict[str, Any], name: str) -> int:
    value = entry[name]
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"{name} is {value!r}; expected a whole number, 0 or more, of 64 bits")
    return value


def _in_lane(entry: dict[str, Any], plans: list[Plan]) -> SavedPlan:
    step_slot, lane, number = (_whole(entry, name) for name in ("step_slot", "lane", "plan"))
    key = entry["key"]
    if key is not None and not isinstance(key, (str, int)):
        raise TypeError(f"the step key {key!r}")
    if lane >= MOST_LANES or number >= len(plans):
        raise ValueError(f"plan {number} in lane {lane} of step slot {step_slot}")
    return SavedPlan(step_slot, lane, key, plans[number])


def _sealed(header: dict[str, Any], columns: Sequence[IntArray]) -> bytes:
    """Return bytes that `_opened` reads: of a header that JSON can hold, and of the columns one after the other."""
    body = MAGIC + json.dumps({"stowplan": __version__, **header}).encode() + b"\n"
    body += b"".join(column.astype("<i8", copy=False).tobytes() for column in columns)
    return body + _digest(body)


def _opened(data: bytes) -> tuple[dict[str, Any], IntArray]:
    """Return the header, and the numbers of all columns.

    Raises
    ------
    ValueError
        The bytes are something else, of another version, or torn.
    """
    if not data.startswith(MAGIC):
        raise ValueError(
            f"not a plan, or one of another version; expected it to begin with {MAGIC.decode().strip()!r}"
        )
    if _digest(data[:-DIGEST]) != data[-DIGEST:]:
        raise ValueError("torn or changed: its digest is another one")
    line = data.find(b"\n", len(MAGIC), -DIGEST)
    try:
        header = json.loads(data[len(MAGIC) : line])
        numbers = np.frombuffer(data[line + 1 : -DIGEST], dtype="<i8").astype(np.int64)
    except (ValueError, RecursionError):
        header = None
    if line < 0 or not isinstance(header, dict):
        raise ValueError("its header is not valid")
    return header, numbers


def _validated(problem: Problem, offsets: IntArray, solver: str) -> Placement:
    """Return offsets as the placement of a problem.

    Raises
    ------
    ConflictError, ValueError
        They are not a valid placement of this problem.
    """
    if len(offsets) != len(problem):
        raise ValueError(f"{len(offsets)} offsets; expected {len(problem)}")
    check_fast(problem, offsets)
    peak, bound = peak_of(problem, offsets), lower_bound(problem)
    offsets.flags.writeable = False
    status: Literal["optimal", "feasible"] = "optimal" if peak == bound else "feasible"
    return Placement(offsets, peak, bound, solver, 0.0, status, "the lower bound, computed again")


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()
