"""What a step needs at a batch size at which nobody ran it, and the largest batch that fits a memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .allocator import Plan, make_plan
from .allocator.plan import problem_of
from .errors import ProfileError
from .packing import lower_bound
from .profiler.scaling import BatchModel

__all__ = ["largest_batch", "predict"]


def predict(
    model: BatchModel,
    batch: int,
    *,
    alignment: int,
    solver: str = "auto",
    time_limit: float | None = None,
    threads: int = 1,
) -> Plan:
    """Plan the step at a batch size.

    Parameters
    ----------
    model
        From `stowplan.profiler.scaling.fit_batches`.
    batch
        1 or more.
    alignment
        Bytes, of the plan's blocks.
    solver, time_limit, threads
        As for `stowplan.packing.pack`.
    """
    return make_plan(
        model.profile(batch), alignment=alignment, planner=solver, time_limit=time_limit, threads=threads
    )


def largest_batch(
    model: BatchModel,
    memory: int,
    *,
    alignment: int,
    solver: str = "auto",
    time_limit: float | None = None,
    threads: int = 1,
) -> tuple[int, Plan] | None:
    """Find the largest batch whose arena fits a memory.

    Lower bounds, which are cheap, give the first candidate; where its plan does not fit, plans decide. O(log batch) of
    each.

    Parameters
    ----------
    memory
        Bytes that the arena may have.
    model, alignment, solver, time_limit, threads
        As for `predict`.

    Returns
    -------
    The batch and its plan; None where not even a batch of 1 fits.

    Raises
    ------
    ProfileError
        A larger batch needs no more bytes, so that there is no largest one.
    """
    if not model.grows:
        raise ProfileError("no block grows with the batch; expected profiles of different batch sizes")

    plan = partial(predict, model, alignment=alignment, solver=solver, time_limit=time_limit, threads=threads)

    def bound_fits(batch: int) -> bool:
        return lower_bound(problem_of(model.profile(batch), alignment)[0]) <= memory

    def plan_fits(batch: int) -> bool:
        return plan(batch).arena_bytes <= memory

    most = 1
    while bound_fits(most):
        most *= 2
    batch = _last(bound_fits, most)
    if batch and not plan_fits(batch):
        batch = _last(plan_fits, batch)
    return (batch, plan(batch)) if batch else None


def _last(fits: Callable[[int], bool], end: int) -> int:
    """Return the largest batch below ``end`` that fits, by bisection; 0 where none does."""
    low = 0
    while end - low > 1:
        middle = (low + end) // 2
        low, end = (middle, end) if fits(middle) else (low, middle)
    return low
