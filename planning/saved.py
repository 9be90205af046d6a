"""Plans in a file, so that a second run of a program needs no warm-up.

The file says for which backend and alignment it was made. Nothing else in it is trusted: every placement is validated
again when it is read, so a damaged or foreign file cannot make two blocks overlap, and replay checks every request as
it would with a plan of its own making.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
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
from ..profiler.steps import MOST_TURNS
from .plan import Plan, problem_of

_FORMAT = "plans"
_VERSION = 7

STEP_SLOT = "berth"
"""The name that files have for it."""

MOST_LANES = 8
"""Of a step slot (allocator/core/lanes/lanes.hpp)."""


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
    entries: list[dict[str, Any]] = []
    lanes: list[dict[str, Any]] = []
    columns: dict[str, npt.NDArray[Any]] = {}
    numbers: dict[Plan, int] = {}
    for saved in plans:
        key, plan = saved.key, saved.plan
        if key is not None and not isinstance(key, (str, int)):
            raise PoolError(f"the step key {key!r} cannot be saved; expected None, a string or an integer")
        is_new = plan not in numbers
        i = numbers.setdefault(plan, len(numbers))
        lanes.append({STEP_SLOT: saved.step_slot, "lane": saved.lane, "key": key, "plan": i})
        if not is_new:
            continue
        solver = plan.placement.solver
        entries.append({"period": plan.profile.period, "solver": solver, "steps": plan.steps})
        columns[f"{i}.offsets"] = plan.placement.offsets
        for name in COLUMNS:
            columns[f"{i}.{name}"] = getattr(plan.profile, name)
    header = {"backend": backend, "alignment": alignment, "small": small, "plans": entries, "lanes": lanes}
    write_archive(path, _FORMAT, _VERSION, header, columns)


def load_plans(path: str | os.PathLike[str], backend: str, alignment: int) -> tuple[list[SavedPlan], int]:
    """Read what `save_plans` wrote, and validate it; return the plans, and below which size requests are not planned.

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
    plans: list[Plan] = []
    saved: list[SavedPlan] = []
    what = "the header"
    try:
        small = int(header["small"])
        for i, entry in enumerate(header["plans"]):
            what = f"plan {i}"
            prefix = f"{i}."
            own = {name[len(prefix) :]: c for name, c in columns.items() if name.startswith(prefix)}
            plans.append(_plan(path, entry, own, alignment))
        for i, entry in enumerate(header["lanes"]):
            what = f"lane {i}"
            saved.append(_in_lane(entry, plans))
    except (KeyError, TypeError, ValueError, IndexError, ConflictError, ProblemError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(path, f"{what} is not valid: {error}") from None
    return saved, small


def _plan(
    path: str | os.PathLike[str],
    entry: dict[str, Any],
    columns: dict[str, npt.NDArray[Any]],
    alignment: int,
) -> Plan:
    profile = Profile.from_columns(path, columns, entry["period"])
    steps = int(entry["steps"])
    if not 1 <= steps <= MOST_TURNS or len(profile) % steps != 0:
        raise ValueError(f"{len(profile)} requests of {steps} steps")
    return _validated(profile, columns["offsets"], alignment, str(entry["solver"]), steps)


def _in_lane(entry: dict[str, Any], plans: list[Plan]) -> SavedPlan:
    step_slot, lane, number, key = (entry[name] for name in (STEP_SLOT, "lane", "plan", "key"))
    if key is not None and not isinstance(key, (str, int)):
        raise TypeError(f"the step key {key!r}")
    if not (step_slot >= 0 and 0 <= lane < MOST_LANES and 0 <= number < len(plans)):
        raise ValueError(f"plan {number} in lane {lane} of step slot {step_slot}")
    return SavedPlan(step_slot, lane, key, plans[number])


def _validated(
    profile: Profile,
    offsets: npt.NDArray[Any],
    alignment: int,
    solver: str,
    steps: int,
) -> Plan:
    problem, rows = problem_of(profile, alignment)
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
    return Plan(profile, rows, problem, placement, steps)
