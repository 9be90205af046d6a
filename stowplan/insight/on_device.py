"""Will a step that ran on the CPU fit a device? Its predicted requests in models of the pools there, and in a plan.

::

    reserved by a pool      |====================|
    escaped, retained       |                    |======|
    of the device           |                           |..UNKNOWN..|        memory
                                                                       ^ within: fits; in it: too close; beyond: not

Requests are rounded as the pools round them; each model replays the step until it stops growing. What changes the
answer of the program's own pool is a remedy: a plan; and of step graphs a lean schedule, or recomputation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BudgetError
from ..profiler import Profile
from ..scheduling import StepGraph
from ..scheduling.solve import least, schedule
from .comparison import ALIGNMENT, POOL_TITLES, compare

__all__ = [
    "FITS",
    "NOT",
    "NOT_KNOWN",
    "POOLS",
    "TOO_CLOSE",
    "UNKNOWN",
    "Way",
    "own_pool",
    "remedies",
    "verdict_of",
    "ways",
]

POOLS = ("cupy", "pytorch", "pytorch-expandable")
UNKNOWN = 800 << 20
"""Bytes that the context and the libraries of a device may take: 300 to 800 MiB is usual."""
FITS, NOT, TOO_CLOSE = "fits", "does not fit", "too close"
_TITLES = {"plan": "stowplan's plan", "lean": "lean (live peak)", "budget": "recomputation (live peak)"}
NOT_KNOWN = (
    f"the device's context and kernels: up to {UNKNOWN >> 20} MiB are allowed for",
    "workspaces of cuDNN and cuBLAS, which they choose on the device by what is free",
    "requests that differ there: on the CPU convolutions ask for unrolled images, and NumPy computes in place",
    "other processes on the device, and pools that keep memory for each stream",
)


@dataclass(frozen=True)
class Way:
    """One way to run the step.

    Attributes
    ----------
    name
        One of ``POOLS``, ``"plan"``, ``"lean"``, ``"budget"``.
    step
        Bytes that the step takes: what a pool or an arena reserves, or a schedule's live peak.
    total
        With escaped blocks and what the program retains, at their fullest moment.
    verdict
        ``FITS``, ``NOT`` or ``TOO_CLOSE``.
    extra_share
        Time that it costs, as a share of the step's.
    """

    name: str
    step: int
    total: int
    verdict: str
    extra_share: float = 0.0

    @property
    def title(self) -> str:
        """For people."""
        return {**POOL_TITLES, **_TITLES}[self.name]


def verdict_of(total: int, memory: int) -> str:
    """Tell whether so many bytes fit a device's memory, besides ``UNKNOWN``."""
    return NOT if total > memory else FITS if total + UNKNOWN <= memory else TOO_CLOSE


def own_pool(profile: Profile | None) -> str:
    """Return the pool that a program has on a device: PyTorch's, or CuPy's, which Chainer takes."""
    program = profile.program if profile is not None else None
    return "pytorch" if program is not None and program.library == "PyTorch" else "cupy"


def ways(
    profile: Profile | None,
    graph: StepGraph | None,
    memory: int,
    retained: int | npt.NDArray[np.int64],
    **how: Any,
) -> list[Way]:
    """Find what each way takes on a device.

    Parameters
    ----------
    profile, graph
        The step at one batch, as predicted; either may be None.
    memory
        Bytes of the device.
    retained
        Bytes that the program keeps from step to step, or at the moments of `.Profile.unplanned_bytes`; but for a
        graph's resident values, if these are more.
    how
        Solver, time limit and threads: of plans, as for `stowplan.insight.comparison.compare`; a schedule's solver is
        its own.
    """
    found: list[Way] = []

    def add(name: str, step: int, kept: int, share: float = 0.0) -> None:
        found.append(Way(name, step, step + kept, verdict_of(step + kept, memory), share))

    if profile is not None:
        compared = compare(profile, alignment=ALIGNMENT, pools=POOLS, **how)
        rounded = replace(profile, size=-(-profile.size // ALIGNMENT) * ALIGNMENT)
        kept = int((rounded.unplanned_step_bytes() + retained).max(initial=np.min(retained)))
        for name, use in compared.pools.items():
            add(name, use.reserved_peak, kept)
        add("plan", compared.plan.arena_bytes, kept)
    if graph is not None:
        kept = max(int(np.max(retained)), graph.resident_bytes)
        lean = schedule(graph, solver="lean")
        add("lean", lean.peak, kept)
        limits = {name: value for name, value in how.items() if name != "solver"}
        left = max(memory - kept - UNKNOWN, 0)
        try:
            best = lean if lean.peak <= left else schedule(graph, left, **limits)
        except BudgetError:
            best = least(graph, **limits)
        add("budget", best.peak, kept, best.extra_seconds / max(float(graph.seconds.sum()), 1e-12))
    return found


def remedies(found: Sequence[Way], own: str) -> list[Way]:
    """Return the ways with a better answer than the program's own pool has; without one, those that fit."""
    rank = {NOT: 0, TOO_CLOSE: 1, FITS: 2}
    base = next((rank[way.verdict] for way in found if way.name == own), 1)
    return [way for way in found if way.name in _TITLES and rank[way.verdict] > base]
