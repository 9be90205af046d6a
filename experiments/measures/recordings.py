"""Profiles of the networks' steps: recorded, or predicted if recording would take too long or too much memory.

Batches of `SMALL` examples are always recorded. Each block's size is an affine function of the batch size, so two
batches predict all others (`stowplan.prediction.fit_steps`). Seconds and bytes are predicted in the same way, and
decide whether a larger batch is recorded.

Blocks below `LEAST` bytes are left out of every figure, for every contestant: NumPy has a cache for them, and on a
device they are scalars that would not be there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

import stowplan
from stowplan import NumpyRecorder, Profile
from stowplan.errors import ProfileError
from stowplan.prediction import fit_steps

from .runner import CannotRunError, Cell, Row, Runner, available_bytes
from .workload import Workload

SMALL = (2, 4)
LEAST = 512
WARMUP, MOST_STEPS = 1, 12
"""Steps before the first recorded one; most steps to wait for two equal ones in a row."""


@dataclass(frozen=True)
class Recording:
    """The profile of a recorded step, its retained bytes and its time.

    Attributes
    ----------
    profile
        All its blocks.
    retained
        Bytes of parameters, statistics and the optimizer's state.
    seconds
        Seconds of the fastest step.
    """

    profile: Profile
    retained: int
    seconds: float


@dataclass(frozen=True)
class Step:
    """A cell's step, as the figures use it.

    Attributes
    ----------
    profile
        Its blocks of `LEAST` bytes and more.
    retained
        As in `Recording`.
    recorded, predicted
        Whether the profile was recorded; and the profile that the small batches predict, if any.
    """

    profile: Profile
    retained: int
    recorded: bool
    predicted: Profile | None


def step_of(runner: Runner, cell: Cell) -> Step:
    """Record a cell's step, or predict it.

    Raises
    ------
    CannotRunError
        No step was equal to the one before it, or small batches do not predict this one and it is too large.
    """
    if cell.phase == "inference" or cell.batch in SMALL:
        recording = recorded(runner, cell)
        return Step(without_small(recording.profile), recording.retained, True, None)
    predicted = predict(cell, lambda small: recorded(runner, small).profile)
    if within_reach(runner, cell):
        recording = recorded(runner, cell)
        return Step(without_small(recording.profile), recording.retained, True, predicted)
    if predicted is None:
        raise CannotRunError("too large to be recorded here, and not predicted by small batches")
    return Step(predicted, recorded(runner, replace(cell, batch=SMALL[0])).retained, False, predicted)


def predict(cell: Cell, profile_of: Callable[[Cell], Profile]) -> Profile | None:
    """Predict a cell's step from small batches; None if their steps are of different kinds."""
    try:
        model = fit_steps({batch: profile_of(replace(cell, batch=batch)) for batch in SMALL})
        return without_small(model.profile(cell.batch))
    except ProfileError:
        return None


def within_reach(runner: Runner, cell: Cell) -> bool:
    """Whether a cell's step is recorded already, or can be."""
    return runner.known(f"recordings/{cell.name}") is not None or affordable(runner, cell)


def overflows(cell: Cell) -> bool:
    """Whether a step would index beyond 32 bits on a device: seen on U-Net at 64, it ends all work of the process."""
    most = cell.model.most_indexed
    if cell.device != "gpu" or cell.phase != "training" or most is None or cell.batch <= most:
        return False
    from chainer.backends import cuda

    return not cuda.cudnn_enabled


def affordable(runner: Runner, cell: Cell, steps: int = WARMUP + 3, share: float = 0.6) -> bool:
    """Whether so many steps of a cell take no longer than the limit, and no more than a share of the free memory."""
    if overflows(cell):
        return False
    seconds, need = expected(runner, cell)
    return seconds * steps <= runner.limit and need <= share * available_bytes(cell.device)


def expected(runner: Runner, cell: Cell) -> tuple[float, int]:
    """Seconds of a cell's step and the bytes that it needs, from those of small batches."""
    if cell.phase == "inference":
        found = recorded(runner, cell)
        return found.seconds, found.retained + found.profile.planned_peak
    small = [recorded(runner, replace(cell, batch=batch)) for batch in SMALL]
    seconds = _affine([one.seconds for one in small], cell.batch)
    return seconds, int(_affine([one.retained + one.profile.planned_peak for one in small], cell.batch))


def recorded(runner: Runner, cell: Cell) -> Recording:
    """Record a cell's step, or read the recording kept."""

    def record_cell() -> tuple[Profile, Row]:
        work = Workload(cell.model, cell.phase, cell.batch, runner.data, cell.device == "gpu")
        for _ in range(WARMUP):
            work.step()
        profile, seconds = record(work)
        return profile, {"retained": work.retained_bytes, "seconds": seconds}

    path, about = runner.saved(f"recordings/{cell.name}", record_cell)
    return Recording(Profile.load(path), **about)


def without_small(profile: Profile) -> Profile:
    """Return the profile without blocks below `LEAST` bytes, on the same clock."""
    keep = profile.size >= LEAST
    return Profile(
        profile.size[keep],
        profile.start[keep],
        profile.end[keep],
        stream=profile.stream[keep],
        period=profile.period,
    )


def record(work: Workload) -> tuple[Profile, float]:
    """Record steps until one is equal to the one before it; return its profile, and the seconds of the fastest.

    Raises
    ------
    CannotRunError
        None was.
    """
    seconds = []
    recorder = stowplan.CupyRecorder() if work.on_device else NumpyRecorder()  # CuPy's imports CuPy
    with recorder:
        for _ in range(MOST_STEPS):
            began = time.perf_counter()
            with recorder.step():
                work.step()
            seconds.append(time.perf_counter() - began)
            try:
                return recorder.profile(), min(seconds)
            except ProfileError:
                continue  # no two equal steps yet
    raise CannotRunError(f"no step of {MOST_STEPS} was equal to the one before it")


def _affine(at_small: Sequence[float], batch: int) -> float:
    """Continue a straight line through the values at `SMALL`, and never below them."""
    if batch in SMALL:
        return at_small[SMALL.index(batch)]
    slope, value = np.polyfit(SMALL, at_small, 1)
    return max(float(slope * batch + value), max(at_small))
