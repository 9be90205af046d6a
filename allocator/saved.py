"""Plans in a file, so that a second run of a program needs no warm-up.

The file says for which backend and alignment it was made. Nothing else in it is trusted: every placement is validated
again when it is read, so a damaged or foreign file cannot make two blocks overlap, and replay checks every request as
it would with a plan of its own making.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ..archive import read_archive, write_archive
from ..errors import ConflictError, FormatError, PoolError, ProblemError
from ..packing import Placement, lower_bound
from ..packing.check import check_fast
from ..packing.placement import peak_of
from ..profiler import Profile
from ..profiler.profile import COLUMNS
from .plan import Plan, problem_of
from .realign import Merged

_FORMAT = "plans"
_VERSION = 4


LanePlan = tuple[int, Hashable, Plan]
"""A plan, with the place of its lane among those of its berth, and its step's key."""

MOST_LANES = 8
"""Of a berth (allocator/core/lanes.hpp)."""


def save_plans(path: str | os.PathLike[str], plans: Iterable[LanePlan], backend: str, alignment: int) -> None:
    """Write plans with their lanes and step keys, atomically.

    Parameters
    ----------
    backend
        For what the plans are, in words: ``"numpy"``, or a device's name.
    alignment
        Bytes; of all their offsets.

    Raises
    ------
    PoolError
        A step key is neither None nor a string nor an integer.
    OSError
        The file cannot be written. The old one, if any, is untouched.
    """
    entries: list[dict[str, Any]] = []
    columns: dict[str, npt.NDArray[Any]] = {}
    for i, (lane, key, plan) in enumerate(plans):
        if key is not None and not isinstance(key, (str, int)):
            raise PoolError(f"the step key {key!r} cannot be saved; expected None, a string or an integer")
        solver = plan.placement.solver
        period, steps = plan.profile.period, plan.steps
        entries.append({"lane": lane, "key": key, "period": period, "solver": solver, "steps": steps})
        columns[f"{i}.offsets"] = plan.placement.offsets
        for name in COLUMNS:
            columns[f"{i}.{name}"] = getattr(plan.profile, name)
        if plan.merged is not None:
            for field in fields(Merged):
                columns[f"{i}.merged.{field.name}"] = getattr(plan.merged, field.name).astype(np.int64)
    header = {"backend": backend, "alignment": alignment, "plans": entries}
    write_archive(path, _FORMAT, _VERSION, header, columns)


def load_plans(path: str | os.PathLike[str], backend: str, alignment: int) -> list[LanePlan]:
    """Read what `save_plans` wrote, and validate it.

    Raises
    ------
    FormatError
        The file is truncated or foreign, made for another backend or alignment, or a plan in it is not valid.
    OSError
        The file cannot be opened.
    """
    header, columns = read_archive(path, _FORMAT, _VERSION)
    for name, expected in (("backend", backend), ("alignment", alignment)):
        if header.get(name) != expected:
            raise FormatError(path, f"made for the {name} {header.get(name)!r}; expected {expected!r}")
    plans: list[LanePlan] = []
    try:
        for i, entry in enumerate(header["plans"]):
            prefix = f"{i}."
            own = {name[len(prefix) :]: c for name, c in columns.items() if name.startswith(prefix)}
            profile = Profile.from_columns(path, own, entry["period"])
            key, solver = entry["key"], str(entry["solver"])
            if key is not None and not isinstance(key, (str, int)):
                raise TypeError(f"the step key {key!r}")
            lane = int(entry["lane"])
            if not 0 <= lane < MOST_LANES:
                raise ValueError(f"lane {lane}")
            merged = _merged(own, len(profile))
            steps = int(entry["steps"])
            if steps not in (1, 2) or len(profile) % steps != 0 or (steps == 2 and merged is not None):
                raise ValueError(f"{len(profile)} requests of {steps} steps")
            plan = _validated(profile, own["offsets"], alignment, solver, merged, steps)
            plans.append((lane, key, plan))
    except (KeyError, TypeError, ValueError, IndexError, ConflictError, ProblemError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(path, f"plan {len(plans)} is not valid: {error}") from None
    return plans


def _merged(columns: dict[str, npt.NDArray[Any]], n: int) -> Merged | None:
    """Return what is known of the steps of a merged plan; it says where a step is, not what is safe."""
    own = {f.name: columns[f"merged.{f.name}"] for f in fields(Merged) if f"merged.{f.name}" in columns}
    if not own:
        return None
    if any(column.dtype != np.int64 or column.shape != (n,) for column in own.values()):
        raise ValueError(f"the columns of a merged plan; expected ({n},) of int64")
    return Merged(**own)


def _validated(
    profile: Profile,
    offsets: npt.NDArray[Any],
    alignment: int,
    solver: str,
    merged: Merged | None,
    steps: int,
) -> Plan:
    problem, rows = problem_of(profile, alignment, merged)
    if offsets.dtype != np.int64 or offsets.shape != (len(rows),):
        raise ValueError(f"{offsets.shape} offsets of {offsets.dtype}; expected ({len(rows)},) of int64")
    check_fast(problem, offsets)
    peak, bound = peak_of(problem, offsets), lower_bound(problem)
    optimal = peak == bound
    placement = Placement(
        offsets,
        peak,
        bound,
        solver,
        0.0,
        "optimal" if optimal else "feasible",
        "the lower bound, computed again",
    )
    return Plan(profile, rows, problem, placement, merged, steps)
