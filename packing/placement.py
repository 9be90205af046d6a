"""What a packer returns: one offset per block, and how good it is known to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from .problem import IntArray, Problem

Status = Literal["optimal", "feasible", "unknown"]


@dataclass(frozen=True, eq=False)
class Placement:
    """Offsets for the blocks of a problem.

    Attributes
    ----------
    offsets
        Bytes from the arena's beginning, int64 (n,), read-only; row by row as in the problem.
    peak
        Bytes that the arena needs: the maximum of offset + size (0 without blocks).
    lower_bound
        No placement of this problem has a smaller peak.
    solver
        Name of the solver that found it.
    seconds
        Wall-clock time that solving took.
    status
        ``"optimal"``: no placement has a smaller peak. ``"feasible"``: valid, and within the capacity where one was
        given. ``"unknown"``: the peak is above the capacity, and it is not known whether it has to be. What is
        ``"infeasible"`` has no placement: see `stowplan.errors.InfeasibleError`.
    witness
        Why no placement is below the lower bound, in words: the moment at which it is attained, or that a search was
        finished.
    """

    offsets: IntArray
    peak: int
    lower_bound: int
    solver: str
    seconds: float
    status: Status
    witness: str

    @property
    def optimal(self) -> bool:
        """Whether the peak is proved to be the smallest."""
        return self.status == "optimal"

    @property
    def gap(self) -> float:
        """Peak / lower bound - 1, the most that an optimum could save; 0 where both are 0."""
        return self.peak / self.lower_bound - 1 if self.lower_bound else 0.0


def peak_of(problem: Problem, offsets: npt.NDArray[np.int64]) -> int:
    """Bytes that an arena needs for these offsets."""
    return int((offsets + problem.size).max()) if len(problem) else 0
