"""Both runs, and what follows from them."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from .. import NumpyPool
from ..allocator import Plan, Stats
from ..packing.pools import CupyPoolModel, replay, requests
from .training import Run, Task, difference, train

WARMUP = 1
FIRST_REPLAYED = WARMUP + 2
"""Step that can be the first to be replayed: the warm-up, one recorded and one that confirms come before it."""


@dataclass(frozen=True)
class Comparison:
    """A task run with NumPy's default allocator and through the pool.

    Attributes
    ----------
    task
        What was trained.
    default, pool
        The two runs.
    plan
        The plan that was replayed.
    arena_bytes
        Bytes that the pool reserved for it.
    cupy_pool_bytes
        What the same requests, in as many steps, make CuPy's pool reserve: a model of its algorithm.
    first_replayed
        Number of the first step that was served from the plan. Both runs are measured from it on.
    replayed, upstream
        Requests of these steps that were served from the plan, and from upstream.
    differs_in
        The first thing in which the runs differ; None where losses, parameters and optimizer state agree in all bits.
    """

    task: Task
    default: Run
    pool: Run
    plan: Plan
    arena_bytes: int
    cupy_pool_bytes: int
    first_replayed: int
    replayed: int
    upstream: int
    differs_in: str | None

    @property
    def fragmentation(self) -> float:
        """Arena / lower bound - 1."""
        return self.arena_bytes / self.plan.placement.lower_bound - 1

    def seconds_per_step(self, run: Run) -> float:
        """Median over the measured steps of a run."""
        return statistics.median(step.seconds for step in run.steps[self.first_replayed :])

    def faults_per_step(self, run: Run) -> float:
        """Median of the minor page faults over the measured steps of a run."""
        return statistics.median(step.minor_faults for step in run.steps[self.first_replayed :])


def compare(task: Task, progress: Callable[[str, int], None] = lambda run, step: None) -> Comparison:
    """Run a task with NumPy's default allocator, then through a pool.

    Parameters
    ----------
    task
        At least ``FIRST_REPLAYED + 1`` steps.
    progress
        Called after each step with the run's name (``"default"``, ``"pool"``) and the number of steps done.

    Raises
    ------
    ProfileError
        No step was repeated by the one after it, so there is no plan.
    """

    def count(name: str) -> Callable[[], None]:
        done = iter(range(1, task.steps + 1))
        return lambda: progress(name, next(done))

    default = train(task, after_step=count("default"))
    gc.collect()  # the first network is a knot of cycles; it must not count among the second run's memory

    pool = NumpyPool(warmup=WARMUP)
    snapshots: list[Stats] = [pool.stats]
    counted = count("pool")

    def after_step() -> None:
        pool.wait()  # so that the first replayed step does not depend on the planner's thread
        snapshots.append(pool.stats)
        counted()

    with pool:
        pooled = train(task, pool.step, after_step)
    plan = pool.plan()
    first = next(
        (i for i in range(task.steps) if snapshots[i + 1].replayed > snapshots[i].replayed), task.steps - 1
    )
    return Comparison(
        task=task,
        default=default,
        pool=pooled,
        plan=plan,
        arena_bytes=snapshots[-1].arena_bytes,
        cupy_pool_bytes=cupy_pool_bytes(plan, task.steps),
        first_replayed=first,
        replayed=snapshots[-1].replayed - snapshots[first].replayed,
        upstream=_in_steps(snapshots[-1]) - _in_steps(snapshots[first]),
        differs_in=difference(default, pooled),
    )


def cupy_pool_bytes(plan: Plan, steps: int) -> int:
    """Bytes that CuPy's pool reserves for the planned blocks of some steps in a row."""
    return replay(requests(plan.problem), CupyPoolModel(), steps).reserved_peak


def _in_steps(stats: Stats) -> int:
    return stats.upstream - stats.reasons.get("outside", 0)
