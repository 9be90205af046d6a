"""The requests of a step, driven through a pool over and over, as a training loop would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ...packing import Problem
from ...packing.problem import IntArray

STEADY_AFTER = 3
"""Steps in a row that reserve nothing, after which `replay` takes a pool's growth for done."""
MOST_STEPS = 30


class Pool(Protocol):
    """What `replay` needs of a pool. All models start empty and are deterministic."""

    @property
    def reserved(self) -> int:
        """Bytes reserved from the device at the moment."""

    @property
    def peak_reserved(self) -> int:
        """The most that were ever reserved."""

    def malloc(self, size: int) -> int:
        """Serve a request of ``size`` bytes; returns the id to free it by."""

    def free(self, handle: int) -> None:
        """Take a block back."""


class Requests(NamedTuple):
    """Allocations and frees in time order.

    Attributes
    ----------
    block
        Which block each of them is about, int64 (k,), numbers into `size`.
    allocate
        Whether it is allocated, or freed, bool (k,).
    size
        Bytes requested, by block, int64 (n,).
    """

    block: IntArray
    allocate: npt.NDArray[np.bool_]
    size: IntArray


def requests(problem: Problem) -> Requests:
    """List the allocations and frees that a problem stands for.

    A block is allocated where its lifetime starts or a gap ends, and freed where a gap starts or its lifetime
    ends; a gap that leaves a window of it does neither. A wrapped block, one with gaps that is alive at both
    ends of the step, is not freed at the end: the first gap of the *next* step does that. At one tick frees
    come first, then rows in order.
    """
    n = len(problem)
    absent = problem.gaps[problem.gaps[:, 4] == 0]
    begins = np.concatenate([np.stack([problem.start, np.arange(n)]), absent[:, [2, 0]].T], axis=1)
    ends = np.concatenate([absent[:, [1, 0]].T, np.stack([problem.end, np.arange(n)])], axis=1)
    if n:
        first, last = problem.start.min(), problem.end.max()
        wrapped = (problem.start == first) & (problem.end == last)
        wrapped &= np.isin(np.arange(n), absent[:, 0])
        begins = begins[:, ~(wrapped[begins[1]] & (begins[0] == first))]
        ends = ends[:, ~(wrapped[ends[1]] & (ends[0] == last))]
    tick, block = np.concatenate([ends, begins], axis=1)
    allocate = np.arange(len(tick)) >= ends.shape[1]
    order = np.lexsort((block, allocate, tick))
    return Requests(block[order], allocate[order], problem.size)


@dataclass(frozen=True, eq=False)
class PoolUse:
    """What a pool reserved while requests were replayed.

    Attributes
    ----------
    steps
        How often the requests were replayed.
    steady
        Whether the last step left the peak of what is reserved as it was.
    reserved_peak
        The most bytes that the pool had reserved.
    live_peak
        The most bytes, as requested, that were alive at once.
    reserved
        Bytes reserved just after each allocation and free, int64 (steps * k,), the steps in a row. For malloc, the most
        that is reserved then in any step, (k,).
    live
        Live bytes just after each allocation and free, int64 (steps * k,); empty for malloc.
    """

    steps: int
    steady: bool
    reserved_peak: int
    live_peak: int
    reserved: IntArray
    live: IntArray


def replay(requests: Requests, model: Pool, steps: int | None = None) -> PoolUse:
    """Drive a pool with the requests of a step, several times in a row.

    Parameters
    ----------
    requests
        One step; or a whole run, to be replayed once.
    model
        Normally a new one, from ``stowplan.insight.pool_models.POOL_MODELS``.
    steps
        How often. None: until ``STEADY_AFTER`` steps in a row have not raised the peak of what is reserved, for pools
        grow during the first steps; ``MOST_STEPS`` at most.

    Notes
    -----
    Wrapped blocks of the last step are freed by no one, as in a loop that is interrupted there; in the first step there
    are none to free yet. So the first step alone may have fewer bytes alive than the others.
    """
    size = requests.size.tolist()
    script = list(zip(requests.block.tolist(), requests.allocate.tolist(), strict=True))
    held: dict[int, int] = {}
    reserved: list[int] = []
    live: list[int] = []
    alive, unchanged, done = 0, 0, 0
    while done < (MOST_STEPS if steps is None else steps):
        before = model.peak_reserved
        for i, wanted in script:
            if wanted:
                held[i] = model.malloc(size[i])
                alive += size[i]
            elif i in held:
                model.free(held.pop(i))
                alive -= size[i]
            reserved.append(model.reserved)
            live.append(alive)
        done += 1
        unchanged = unchanged + 1 if model.peak_reserved == before else 0
        if steps is None and unchanged == STEADY_AFTER:
            break
    return PoolUse(
        steps=done,
        steady=unchanged > 0,
        reserved_peak=model.peak_reserved,
        live_peak=max(live, default=0),
        reserved=np.array(reserved, dtype=np.int64),
        live=np.array(live, dtype=np.int64),
    )
