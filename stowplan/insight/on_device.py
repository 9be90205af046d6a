"""Will a step that ran on the CPU fit a device? Its predicted requests in models of the pools there, and in a plan.

::

    reserved by a pool      |====================|
    escaped, retained       |                    |======|
    of the device           |                           |..UNKNOWN..|        memory
                                                                       ^ within: fits; in it: too close; beyond: not

Requests are rounded as the pools round them; each model replays the step until it stops growing. A plan is a remedy if
it changes the answer of the program's own pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..profiler import Profile
from .comparison import ALIGNMENT, POOL_TITLES, compare

POOLS = ("cupy", "pytorch", "pytorch-expandable")
UNKNOWN = 800 << 20
"""Bytes that the context and the libraries of a device may take: 300 to 800 MiB is usual."""
FITS, NOT, TOO_CLOSE = "fits", "does not fit", "too close"
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
        One of ``POOLS``, or ``"plan"``.
    step
        Bytes that the pool, or the arena, reserves for the step.
    total
        With what is alive beside it at the fullest moment.
    verdict
        ``FITS``, ``NOT`` or ``TOO_CLOSE``.
    """

    name: str
    step: int
    total: int
    verdict: str

    @property
    def title(self) -> str:
        """For people."""
        return {**POOL_TITLES, "plan": "stowplan's plan"}[self.name]


def verdict_of(total: int, memory: int) -> str:
    """Tell whether so many bytes fit a device's memory, besides ``UNKNOWN``."""
    return NOT if total > memory else FITS if total + UNKNOWN <= memory else TOO_CLOSE


def own_pool(profile: Profile) -> str:
    """Return the pool that a program has on a device: PyTorch's, or CuPy's, which Chainer takes."""
    program = profile.program
    return "pytorch" if program is not None and program.library.startswith("PyTorch") else "cupy"


def ways(profile: Profile, memory: int, kept: int, **how: Any) -> list[Way]:
    """Find what each way takes on a device.

    Parameters
    ----------
    profile
        The step at one batch, as predicted.
    memory
        Bytes of the device.
    kept
        Bytes beside the plan, as `.StepPrediction.kept` has them.
    how
        Solver, time limit and threads, as for `stowplan.insight.comparison.compare`.
    """
    compared = compare(profile, alignment=ALIGNMENT, pools=POOLS, **how)
    steps = {name: use.reserved_peak for name, use in compared.pools.items()}
    steps["plan"] = compared.plan.arena_bytes
    return [Way(name, step, step + kept, verdict_of(step + kept, memory)) for name, step in steps.items()]


def remedies(found: Sequence[Way], own: str) -> list[Way]:
    """Return the ways with a better answer than the program's own pool has."""
    rank = {NOT: 0, TOO_CLOSE: 1, FITS: 2}
    base = next(rank[way.verdict] for way in found if way.name == own)
    return [way for way in found if way.name == "plan" and rank[way.verdict] > base]
