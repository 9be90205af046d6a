"""Run a task in three ways, and compare the results."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ... import NumpyPool
from ...allocator import Stats
from ...planning import Plan
from ..pool_models import CupyPoolModel, replay, requests
from .training import Run, Task, difference, train

FIRST_REPLAYED = 3
"""Step that can be the first to be replayed: one that warms up, one recorded and one that confirms come before it."""


@dataclass(frozen=True)
class PooledRun(Run):
    """A run through a pool.

    Attributes
    ----------
    plan
        The plan that was replayed.
    stats
        The pool's, before the first step and after each.
    """

    plan: Plan
    stats: tuple[Stats, ...]

    @property
    def arena_bytes(self) -> int:
        """Bytes that the pool reserved for the plan."""
        return self.stats[-1].arena_bytes

    @property
    def fragmentation(self) -> float:
        """Arena / lower bound - 1."""
        return self.arena_bytes / self.plan.placement.lower_bound - 1

    @property
    def cupy_pool_bytes(self) -> int:
        """Bytes that a model of CuPy's pool reserves for the same requests, in as many steps."""
        return replay(requests(self.plan.problem), CupyPoolModel(), len(self.steps)).reserved_peak

    @property
    def first_replayed(self) -> int:
        """Number of the first step that was served from the plan, or of the last step if none was."""
        numbers = range(len(self.steps))
        replayed = (n for n in numbers if self.stats[n + 1].replayed > self.stats[n].replayed)
        return next(replayed, numbers[-1])

    def replayed(self, first: int) -> int:
        """Return the requests that were served from the plan, from a step on."""
        return self.stats[-1].replayed - self.stats[first].replayed

    def upstream(self, first: int) -> int:
        """Return the requests of steps that were served from upstream, from a step on."""
        return _in_steps(self.stats[-1]) - _in_steps(self.stats[first])


@dataclass(frozen=True)
class Comparison:
    """A task run with NumPy's default allocator, through the pool, and lean through the pool.

    Attributes
    ----------
    task
        What was trained.
    default, pool, lean
        The three runs.
    differs_in
        The first thing in which a run differs from the first one; None if losses, parameters and optimizer state
        agree in all bits.
    """

    task: Task
    default: Run
    pool: PooledRun
    lean: PooledRun
    differs_in: str | None

    @property
    def first_measured(self) -> int:
        """Number of the first step that both pools served from their plans. All runs are measured from it on."""
        return max(self.pool.first_replayed, self.lean.first_replayed)

    def seconds_per_step(self, run: Run) -> float:
        """Median over the measured steps of a run."""
        return statistics.median(step.seconds for step in run.steps[self.first_measured :])

    def faults_per_step(self, run: Run) -> float:
        """Median of the minor page faults over the measured steps of a run."""
        return statistics.median(step.minor_faults for step in run.steps[self.first_measured :])


def compare(task: Task, progress: Callable[[str, int], None] = lambda run, step: None) -> Comparison:
    """Run a task with NumPy's default allocator, then through a pool, then lean through another one.

    Parameters
    ----------
    task
        At least ``FIRST_REPLAYED + 1`` steps.
    progress
        Called after each step with the run's name (``"default"``, ``"pool"``, ``"lean"``) and the number of steps done.

    Raises
    ------
    ProfileError
        No step was repeated by the one after it, so there is no plan.
    """
    from ...chainer import Scheduler

    def count(name: str) -> Callable[[], None]:
        done = iter(range(1, task.steps + 1))
        return lambda: progress(name, next(done))

    default = train(task, after_step=count("default"))
    pool = NumpyPool(warmup=1)
    with pool:
        pooled = _train_through(pool, task, lambda optimizer: pool.step, count("pool"))
    # The scheduler's first step is Chainer's own, outside of the pool: that is the warm-up.
    other = NumpyPool(warmup=0)
    lean = _train_through(other, task, lambda optimizer: Scheduler(optimizer, other).step, count("lean"))
    return Comparison(
        task, default, pooled, lean, differs_in=difference(default, pooled) or difference(default, lean)
    )


def _train_through(
    pool: NumpyPool,
    task: Task,
    steps: Callable[[Any], Callable[[], AbstractContextManager[Any]]],
    counted: Callable[[], None],
) -> PooledRun:
    gc.collect()  # the former network has reference cycles; it must not count in this run's memory
    stats = [pool.stats]

    def after_step() -> None:
        pool.wait()  # so that the first replayed step does not depend on the planner's thread
        stats.append(pool.stats)
        counted()

    run = train(task, steps, after_step)
    return PooledRun(run.steps, run.state, pool.plan(), tuple(stats))


def _in_steps(stats: Stats) -> int:
    return stats.upstream - stats.reasons.get("outside", 0)
