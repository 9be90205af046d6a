"""A profile's step through stowplan and through every pool that is modelled: what each would reserve.

All of them serve the *planned* blocks: those that die within a step or in the one after it, on the stream that requests
most bytes. Older and escaped blocks (parameters, optimizer state) are the same for everybody. What a plan saves is a
share of the program's memory with a pool, at its fullest moment: older and escaped blocks, and what the pool reserves.
It is known where the profile knows of older blocks.

For a profile of the host's, of NumPy or of PyTorch's CPU tensors, the C library's malloc is measured, as that is what
the plan takes the place of. Pools of devices then tell what the same step would need there: they are hypothetical.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..packing import Problem, lower_bound
from ..planning import Plan, make_plan
from .capacity import Log, log_of
from .pool_models import POOL_MODELS, PoolUse, Requests, replay, replay_malloc, requests

if TYPE_CHECKING:
    from ..packing import PackingProgress
    from ..profiler import Profile

__all__ = [
    "ALIGNMENT",
    "HOST_ALIGNMENT",
    "MALLOC",
    "POOL_TITLES",
    "Comparison",
    "Peak",
    "alignment_of",
    "as_requested",
    "compare",
    "is_of_host",
    "peak_of",
    "plan_of",
]

ALIGNMENT = 512
"""Bytes: what `CupyPool` aligns blocks to."""
HOST_ALIGNMENT = 64
"""Bytes: what `NumpyPool` and `TorchPool` do."""

MALLOC = "malloc"
"""The C library's: measured, for a profile of the host's."""

POOL_TITLES = {
    MALLOC: "the C library's malloc",
    "cupy": "CuPy's pool",
    "pytorch": "PyTorch's",
    "pytorch-expandable": "PyTorch's, expandable",
    "rmm": "RMM's pool",
    "free-lists": "Chainer 1's free lists",
    "none": "no pool",
}


@dataclass(frozen=True)
class Comparison:
    """What stowplan and other pools reserve for the same step.

    Attributes
    ----------
    plan
        stowplan's: its placement has the arena (``peak``) and the lower bound, in units of the alignment.
    planned_peak
        The most bytes, as requested, that the planned blocks have alive at once.
    pools
        By name in ``POOL_MODELS``, or ``MALLOC``: the use after enough steps for the pool to stop growing.
    """

    plan: Plan
    planned_peak: int
    pools: dict[str, PoolUse]

    def titled(self) -> Iterator[tuple[str, str, PoolUse]]:
        """Name, title and use of every pool."""
        for name, use in self.pools.items():
            yield name, POOL_TITLES[name], use

    def saved(self, name: str) -> float | None:
        """Share of the program's memory with a pool that the plan saves; negative if the pool needs less.

        None where the program's memory is not known; and for ``"none"``, which reserves only what is alive.
        """
        planned, whole = self.with_plan, self.whole(name)
        if planned is None or whole is None or name == "none":
            return None
        return (whole - planned) / whole if whole else 0.0

    def whole(self, name: str) -> int | None:
        """Bytes that the program takes with a pool at most; None where the profile does not know of older blocks.

        Of a log, what the pool reserves for all that the log requests, once.
        """
        profile = self.plan.profile
        if (rest := profile.unplanned_bytes()) is None:
            return None
        if profile.program is not None and profile.program.is_log:
            return replay(self._log.requests, POOL_MODELS[name](), steps=1).reserved_peak
        return int((rest + self._reserved(self.pools[name])).max())

    @property
    def with_plan(self) -> int | None:
        """Bytes that the program takes with the plan at most, which are the arena and the other live bytes.

        None where the profile does not know.
        """
        unplanned = self.plan.profile.unplanned_peak
        return None if unplanned is None else unplanned + self.plan.arena_bytes

    @property
    def saved_of_reserved(self) -> float | None:
        """Share of all that the program's own pool had reserved that is left over with the plan.

        None where the profile does not know; negative if it needs more.
        """
        planned, program = self.with_plan, self.plan.profile.program
        if planned is None or program is None or not program.reserved:
            return None
        return 1 - planned / program.reserved

    @functools.cached_property
    def _log(self) -> Log:
        return log_of(self.plan.profile)

    @functools.cached_property
    def _script(self) -> Requests:
        return requests(as_requested(self.plan))

    def _reserved(self, use: PoolUse) -> npt.NDArray[np.int64]:
        """Bytes that a pool has reserved, at most, at the moments of `Profile.unplanned_bytes`."""
        profile, script = self.plan.profile, self._script
        block = self.plan.rows[script.block]
        tick = np.where(script.allocate, profile.start[block], profile.end[block]) % max(profile.period, 1)
        if not len(tick):
            return np.zeros(profile.period + 1, dtype=np.int64)
        order = np.argsort(tick)
        last = np.searchsorted(tick[order], np.arange(profile.period + 1), "right") - 1
        return np.asarray(use.reserved.reshape(-1, len(tick)).max(axis=0)[order][last])


@dataclass(frozen=True)
class Peak:
    """The first moment at which the most bytes are alive, of those that were requested.

    Attributes
    ----------
    tick
        On the logical clock.
    rows
        Which blocks of the profile are alive then, int64 (k,).
    """

    tick: int
    rows: npt.NDArray[np.int64]


def is_of_host(profile: Profile) -> bool:
    """Whether a profile is known to be of requests for host memory: NumPy's, or PyTorch's for CPU tensors."""
    return profile.program is not None and profile.program.library in ("NumPy", "PyTorch")


def alignment_of(profile: Profile) -> int:
    """Return the bytes that the pool which a profile is for aligns blocks to."""
    return HOST_ALIGNMENT if is_of_host(profile) else ALIGNMENT


def plan_of(profile: Profile, alignment: int | None = None, solver: str = "auto", **how: Any) -> Plan:
    """Plan a step, by default with the alignment of the pool that the profile is for; ``how``: as for `make_plan`."""
    return make_plan(profile, alignment=alignment or alignment_of(profile), solver=solver, **how)


def peak_of(plan: Plan) -> Peak:
    """Find the peak of a plan's blocks, and the blocks alive at it."""
    live = plan.profile.live_bytes()
    tick = int(live.argmax()) if len(live) else 0
    return Peak(tick, plan.rows[plan.profile.alive_at(tick)[plan.rows]])


def as_requested(plan: Plan) -> Problem:
    """Return a plan's blocks with the sizes that were requested, neither aligned nor rounded."""
    start, end, gaps = plan.profile.on_line(plan.rows)
    return Problem(plan.profile.size[plan.rows], start, end, gaps=gaps)


def compare(
    profile: Profile,
    *,
    alignment: int | None = None,
    solver: str = "auto",
    time_limit: float | None = None,
    threads: int = 1,
    pools: Iterable[str] | None = None,
    progress: Callable[[PackingProgress], object] | None = None,
) -> Comparison:
    """Plan a step, and replay it through models of other pools.

    Parameters
    ----------
    profile
        The step.
    alignment
        Bytes, of the plan's blocks; None: ``alignment_of`` the profile.
    solver, time_limit, threads, progress
        As for `stowplan.packing.pack`.
    pools
        Names in ``POOL_MODELS``, or ``MALLOC``. None: all of the models, and for a profile of the host's first
        ``MALLOC``, if it can be measured.

    Raises
    ------
    UnknownSolverError
        There is no such solver.

    Examples
    --------
    CuPy's pool, which cannot see the future, reserves 9 MiB where a plan needs 7:

    >>> from stowplan import Profile
    >>> from stowplan.insight.comparison import compare
    >>> size = [MiB << 20 for MiB in (1, 4, 1, 1, 4)]
    >>> found = compare(Profile(size, start=[0, 1, 3, 4, 5], end=[8, 2, 9, 7, 6], period=10), pools=["cupy"])
    >>> found.plan.arena_bytes >> 20, found.pools["cupy"].reserved_peak >> 20
    (7, 9)
    """
    limits = {"time_limit": time_limit, "threads": threads, "progress": progress}
    plan = plan_of(profile, alignment, solver, **limits)
    asked = as_requested(plan)
    script = requests(asked)
    if pools is None:
        pools = (MALLOC, *POOL_MODELS) if is_of_host(profile) else POOL_MODELS
    uses = {
        name: replay_malloc(script) if name == MALLOC else replay(script, POOL_MODELS[name]())
        for name in pools
    }
    return Comparison(plan, lower_bound(asked), {name: use for name, use in uses.items() if use is not None})
