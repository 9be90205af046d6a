"""Run a task in three ways, and compare the results."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ... import NumpyPool
from ...allocator import Stats
from ...planning import Plan
from ..pool_models import CupyPoolModel, replay, requests
from .training import Run, Task, Training, difference


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

    def over_default(self, run: Run) -> tuple[float, float, float]:
        """Quartiles, over the measured rounds, of a step's seconds over those of NumPy's step in the same round."""
        rounds = zip(run.steps[self.first_measured :], self.default.steps[self.first_measured :], strict=True)
        ratios = [step.seconds / default.seconds for step, default in rounds]
        low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
        return low, median, high

    def faults_per_step(self, run: Run) -> float:
        """Median of the minor page faults over the measured steps of a run."""
        return statistics.median(step.minor_faults for step in run.steps[self.first_measured :])


def compare(task: Task, progress: Callable[[int], None] = lambda done: None) -> Comparison:
    """Run a task with NumPy's default allocator, through a pool, and lean through another one.

    The three take turns, a step each, and begin in turn: what else the machine does slows all of them. The time of a
    step counts relative to that of NumPy's step in the same round.

    Parameters
    ----------
    task
        At least four steps: one that warms up, one recorded, one that confirms, and one replayed.
    progress
        Called after each round with the number of rounds done.

    Raises
    ------
    ProfileError
        No step was repeated by the one after it, so there is no plan.
    """
    from ...chainer import Scheduler

    # The scheduler's first step is Chainer's own, outside of the pool: that is the warm-up.
    pool, other = NumpyPool(warmup=1), NumpyPool(warmup=0)

    @contextmanager
    def served() -> Iterator[None]:
        with pool, pool.step():
            yield

    runs = [
        Training(task),
        Training(task, lambda optimizer: served),
        Training(task, lambda optimizer: Scheduler(optimizer, other).step),
    ]
    stats = [(pool.stats, other.stats)]
    for done in range(task.steps):
        first = done % len(runs)
        for run in runs[first:] + runs[:first]:
            run.step()
            pool.wait()  # so that the first replayed step does not depend on the planner's thread
            other.wait()
        stats.append((pool.stats, other.stats))
        progress(done + 1)
    default, *others = (run.run() for run in runs)
    pooled, lean = (
        PooledRun(run.steps, run.state, pool.plan(), own)
        for run, pool, own in zip(others, (pool, other), zip(*stats, strict=True), strict=True)
    )
    return Comparison(
        task, default, pooled, lean, differs_in=difference(default, pooled) or difference(default, lean)
    )


def _in_steps(stats: Stats) -> int:
    return stats.upstream - stats.reasons.get("outside", 0)
