"""A profile's step through stowplan and through every pool that is modelled: what each would reserve.

All of them serve the *planned* blocks: those that die within a step or in the one after it, on the stream that asks for
most bytes. Escaped blocks (parameters, optimizer state) are the same for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .packing import Problem, lower_bound
from .planning import Plan, make_plan
from .pool_models import POOL_MODELS, PoolUse, replay, requests

if TYPE_CHECKING:
    from .packing import Progress
    from .profiler import Profile

__all__ = ["ALIGNMENT", "POOL_TITLES", "Comparison", "Peak", "as_requested", "compare", "peak_of"]

ALIGNMENT = 512
"""Bytes: what `CupyPool` aligns blocks to."""

POOL_TITLES = {
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
        stowplan's: its placement has the arena (`peak`) and the lower bound, in units of the alignment.
    planned_peak
        The most bytes, as asked for, that the planned blocks have alive at once.
    pools
        By name in `POOL_MODELS`: the use after enough steps for the pool to stop growing.
    """

    plan: Plan
    planned_peak: int
    pools: dict[str, PoolUse]

    def titled(self) -> Iterator[tuple[str, str, PoolUse]]:
        """Name, title and use of every pool."""
        for name, use in self.pools.items():
            yield name, POOL_TITLES[name], use

    def saved(self, name: str) -> float:
        """Share of a pool's reserved bytes that the plan saves; negative if the pool needs less."""
        reserved = self.pools[name].reserved_peak
        return 1 - self.plan.arena_bytes / reserved if reserved else 0.0


@dataclass(frozen=True)
class Peak:
    """The first moment at which the most bytes are alive, of those that were asked for.

    Attributes
    ----------
    tick
        On the logical clock.
    rows
        Which blocks of the profile are alive then, int64 (k,).
    """

    tick: int
    rows: npt.NDArray[np.int64]


def peak_of(plan: Plan) -> Peak:
    """Find the peak of a plan's blocks, and the blocks alive at it."""
    profile, rows = plan.profile, plan.rows
    size, start, end = profile.size[rows], profile.start[rows], profile.end[rows]
    change = np.zeros(profile.period + 1, dtype=np.int64)
    np.add.at(change, start, size)
    np.subtract.at(change, end % max(profile.period, 1), size)
    # What wrapped blocks of the step before have alive at the beginning is the same at every tick.
    tick = int(np.cumsum(change).argmax())
    alive = ((start <= tick) & (tick < end)) | (tick < end - profile.period)
    return Peak(tick, rows[alive])


def as_requested(plan: Plan) -> Problem:
    """Return a plan's blocks with the sizes that were asked for, neither aligned nor rounded."""
    start, end, gaps = plan.profile.on_line(plan.rows)
    return Problem(plan.profile.size[plan.rows], start, end, gaps=gaps)


def compare(
    profile: Profile,
    *,
    alignment: int = ALIGNMENT,
    solver: str = "auto",
    time_limit: float | None = None,
    threads: int = 1,
    pools: Iterable[str] = tuple(POOL_MODELS),
    progress: Callable[[Progress], object] | None = None,
) -> Comparison:
    """Plan a step, and replay it through models of other pools.

    Parameters
    ----------
    profile
        The step.
    alignment
        Bytes, of the plan's blocks.
    solver, time_limit, threads, progress
        As for `stowplan.packing.pack`.
    pools
        Names in `POOL_MODELS`.

    Raises
    ------
    UnknownSolverError
        There is no such solver.
    """
    plan = make_plan(
        profile,
        alignment=alignment,
        planner=solver,
        time_limit=time_limit,
        threads=threads,
        progress=progress,
    )
    asked = as_requested(plan)
    script = requests(asked)
    uses = {name: replay(script, POOL_MODELS[name]()) for name in pools}
    return Comparison(plan, lower_bound(asked), uses)
