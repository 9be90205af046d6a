"""What follows a first step: the plan that an earlier run came to, for a run that begins alike.

The first steps of a run are none to plan (parameters and the optimizer's state are made in them), but they tell which
program this is. So a pool notes, under what the last step before the record asked for, the plan that it came to replay;
and a later run in which a step asks for the same has that plan for the next one. It is an expectation and no more:
requests are checked against it as against any plan, and where they differ, the pool goes on as without it.

The bytes are those of a placement, with four columns of the profile, n requests, before the offsets of its blocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

from .._version import __version__
from ..errors import ProblemError, ProfileError
from ..profiler import Profile, StepLog
from ..profiler.steps import MOST_TURNS
from .packer import warn_once
from .plan import Plan, problem_of
from .store import DamagedError, PlanStore
from .store_packing import VERSION, opened, sealed, validated

COLUMNS = ("size", "start", "end", "stream")


def key_after(log: StepLog, step: Hashable, *, alignment: int, solver: str, small: int) -> str | None:
    """Return the key of what follows a first step; None for a step's key that other processes may not understand.

    Parameters
    ----------
    log
        The first step of its key.
    step
        Its key.
    alignment, solver, small
        What plans depend on beside requests: bytes, a name, and the size from which on requests are planned.
    """
    if step is not None and type(step) not in (str, int):
        return None
    what = f"after {VERSION} {__version__} {solver} {alignment} {small} {step!r}\n"
    known = hashlib.blake2b(what.encode("utf-8", "backslashreplace"), digest_size=32)
    known.update(log.requested.tobytes())
    known.update(log.streams.tobytes())
    return known.hexdigest()


def remember(store: PlanStore, key: str, plan: Plan) -> None:
    """Note what a run has come to replay; it is not worth an error."""
    if not plan.arena_bytes:
        return
    try:
        store.remember(key, encode_step(key, plan))
    except Exception as error:
        warn_once(f"{store.where(key)}: cannot be kept: {error}")


def recall(store: PlanStore, key: str, alignment: int) -> Plan | None:
    """Return the plan that an earlier run came to replay; None where there is none, or it is refused."""
    try:
        data = store.recall(key)
        return None if data is None else decode_step(data, key, alignment)
    except DamagedError as error:
        warn_once(f"{store.where(key)} is refused: {error}")
    except Exception as error:
        warn_once(f"{store.where(key)} cannot be asked for: {error}")
    return None


def encode_step(key: str, plan: Plan) -> bytes:
    """Return the bytes of a plan."""
    profile = plan.profile
    known = {"requests": len(profile), "period": profile.period, "steps": plan.steps}
    columns = [getattr(profile, name) for name in COLUMNS]
    return sealed(key, plan.placement, known, [*columns, plan.placement.offsets])


def decode_step(data: bytes, key: str, alignment: int) -> Plan:
    """Return the plan; validated, whoever wrote the bytes.

    Raises
    ------
    DamagedError
        The bytes are not a valid plan.
    """
    header, numbers = opened(data, key)
    requests, period, steps = (header.get(name) for name in ("requests", "period", "steps"))
    if not (type(requests) is type(period) is type(steps) is int and 0 < 4 * requests <= len(numbers)):
        raise DamagedError("its header is not valid")
    if not 1 <= steps <= MOST_TURNS or requests % steps:
        raise DamagedError(f"{requests} requests of {steps} steps")
    columns = numbers[: 4 * requests].reshape(4, requests)
    try:
        profile = Profile(columns[0], columns[1], columns[2], stream=columns[3], period=period)
        problem, rows = problem_of(profile, alignment)
    except (ProfileError, ProblemError, OverflowError) as error:
        raise DamagedError(f"not valid: {error}") from None
    placement = validated(problem, numbers[4 * requests :].copy(), header["solver"])
    return Plan(profile, rows, problem, placement, steps=steps)
