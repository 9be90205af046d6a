"""Does an allocation log fit so much memory under each pool, what fails first if not, and how much would do.

The log is replayed once, through models of pools that cannot take more than a *capacity*. Where that does not suffice,
CuPy's and PyTorch's give back the reservations in which nothing lives, as the pools do, and try again. RMM's pool has
the whole capacity from the start, as if it were its ``initial_pool_size`` and ``maximum_pool_size``. PyTorch's
expandable segments, which unmap pages when memory has run out, have no model of that.

A step's profile will not do: what lives beside the step lies in the same pool, at places that it does not tell.
O(events log blocks) for each capacity that is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..common.errors import ProfileError
from ..profiler import Profile
from .pool_models import POOL_MODELS, Requests, RmmPoolModel
from .pool_models.heap import PoolFullError

POOLS = ("rmm", "cupy", "pytorch", "none")
UNIT = 1 << 20
"""Bytes: what a smallest capacity is a multiple of."""
NEXT, _REPLAYED = 64, 1_000_000
"""How many of the next sizes are tried at most, and requests that are replayed for that."""
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Failure:
    """The first request that a pool refuses.

    Attributes
    ----------
    event
        Its place among the allocations and frees of the log, from 1 on; 0: of what was live when it began.
    size
        Bytes requested.
    live
        Bytes alive, as requested.
    hole
        Bytes of the largest free range of the pool.
    unreserved
        Bytes of the capacity that the pool had not reserved.
    """

    event: int
    size: int
    live: int
    hole: int
    unreserved: int


class Log(NamedTuple):
    """The allocations and frees of a log.

    Attributes
    ----------
    requests
        Those of blocks that no plan places, too.
    older
        How many of the first ones are of blocks that were live when the log began.
    older_bytes
        Of these, the bytes that are known by their sum alone: they count as one block, which stays.
    """

    requests: Requests
    older: int
    older_bytes: int


def log_of(profile: Profile) -> Log:
    """List what a log has: a wrapped block is two, one that was live when it began, and one that lives on.

    Raises
    ------
    ProfileError
        The profile is of a step that repeats.
    """
    program, wrapped = profile.program, np.flatnonzero(profile.wrapped)
    if program is not None and not program.is_log:
        raise ProfileError(
            f"the profile is one step of a {program.library} program, without what lives beside it; expected a whole "
            "log: RMM's, or a snapshot of PyTorch's"
        )
    rest = max((0 if program is None else program.before) - int(profile.size[wrapped].sum()), 0)
    size = np.concatenate([profile.size, profile.size[wrapped], [rest]])
    begin = np.concatenate([profile.start, np.full(len(wrapped) + 1, -1)])
    end = np.where(profile.escaped | profile.wrapped, _NEVER, profile.end)
    end = np.concatenate([end, profile.end[wrapped] - profile.period, [_NEVER]])
    ends = np.flatnonzero(end != _NEVER)
    tick, block = np.concatenate([begin, end[ends]]), np.concatenate([np.arange(len(size)), ends])
    order = np.lexsort((block, tick))
    order = order[size[block[order]] > 0]
    requests = Requests(block[order], (np.arange(len(tick)) < len(size))[order], size)
    return Log(requests, int((tick[order] < 0).sum()), rest)


def first_failure(log: Log, pool: str, capacity: int) -> Failure | None:
    """Replay a log through one of `POOLS` that has so many bytes; None: it fits."""
    model = RmmPoolModel(capacity // 256 * 256) if pool == "rmm" else POOL_MODELS[pool]()
    model.capacity = capacity
    size, live, held = log.requests.size.tolist(), 0, dict[int, int]()
    script = zip(log.requests.block.tolist(), log.requests.allocate.tolist(), strict=True)
    for number, (block, allocate) in enumerate(script, 1 - log.older):
        if not allocate:
            model.free(held.pop(block))
            live -= size[block]
            continue
        try:
            held[block] = model.malloc(size[block])
        except PoolFullError:
            return Failure(max(number, 0), size[block], live, model.largest_hole, capacity - model.reserved)
        live += size[block]
    return None


def smallest_capacity(
    log: Log, pool: str, progress: Callable[[int], object] | None = None, also: int = 0
) -> tuple[int, int]:
    """Find from which capacity on a log fits one of `POOLS`, by bisection, in multiples of `UNIT`.

    Best fit may fail with more memory than it has managed with. So more capacities are tried: the next ones, of a short
    log up to `NEXT`, and then farther and farther ones, up to twice as many bytes. Where one fails, the bisection goes
    on above it.

    Parameters
    ----------
    log, pool
        As for `first_failure`.
    progress
        Called with each capacity, in bytes, before it is tried.
    also
        A capacity that is tried, too.

    Returns
    -------
    The capacity from which on all fit that were tried; and the one that was found first, below which one fails.
    """
    known: dict[int, bool] = {}

    def fits(units: int) -> bool:
        if units not in known:
            if progress is not None:
                progress(units * UNIT)
            known[units] = first_failure(log, pool, units * UNIT) is None
        return known[units]

    def bisected(short: int, enough: int) -> int:
        while not fits(enough):
            short, enough = enough, 2 * enough
        while enough - short > 1:
            middle = (short + enough) // 2
            short, enough = (short, middle) if fits(middle) else (middle, enough)
        return enough

    size = np.where(log.requests.allocate, 1, -1) * log.requests.size[log.requests.block]
    short = max(int(np.cumsum(size).max(initial=1)) - 1, 0) // UNIT  # less than what is live
    least = enough = bisected(short, short + 1)
    following = min(NEXT, max(_REPLAYED // max(len(log.requests.block), 1), 1))
    while True:
        farther = (enough + (1 << k) for k in range(enough.bit_length()))
        tried = sorted({*range(enough, enough + following), *farther, max(-(-also // UNIT), enough)})
        failed = [units for units in tried if not fits(units)]
        if enough * UNIT < also and first_failure(log, pool, also) is not None:
            failed = sorted({*failed, also // UNIT})
        if not failed:
            return enough * UNIT, least * UNIT
        enough = bisected(failed[-1], next((units for units in tried if units > failed[-1]), 2 * failed[-1]))
