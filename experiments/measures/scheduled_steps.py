"""Measure a network's scheduled steps beside Chainer's own: a process of `experiments.schedule`.

It calls a function of `RUN`. As in `paired_timing` the contestants take turns within a step; each has its own
parameters, as one must not change what another one has read, gradients and optimizer's state::

    Chainer        the step as it is
    lean           the same under a scheduler without a budget
    lean, pool     ... through a pool                           if no budget is given
    scheduled      the same under a scheduler with the budget   if one is

After the turns one step is recorded for its live peak: a scheduled one if there is a budget, else a lean one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from stowplan import CupyPool, NumpyPool
from stowplan.compat import enable_chainer
from stowplan.errors import BudgetError

from ..models import MODELS
from .data import Data
from .paired_timing import LEAST_ROUNDS, Turn, interleaved, rounds_until_clear
from .recordings import record, without_small
from .runner import CannotRunError
from .workload import Workload

CHAINER, LEAN, POOLED, SCHEDULED = "Chainer", "lean", "lean, pool", "scheduled"
OPTIMIZERS = ("SGD", "MomentumSGD", "Adam")
STEPS = 10
"""Number of steps in each run whose bits are compared."""
WARMUP = 2
"""Steps of each contestant before the first round."""
MOST_STEPS = 12
"""Most steps to wait until one is scheduled, or served by the pool."""
ATTEMPTS, SLACK = 4, 1.005
"""A budget below the least found is raised to `SLACK` times that least: the next recording may need a little more."""


@dataclass(frozen=True)
class Task:
    """A comparison of scheduled steps with Chainer's.

    Attributes
    ----------
    model, batch
        The cell, of training.
    seed
        Of parameters and data.
    budget
        Bytes that a step may have alive beside parameters and state; None: lean.
    device
        ``"cpu"``, or ``"gpu"``: the simulated one, where no turns are taken.
    rounds, seconds
        Most rounds, and the seconds after which no further round begins; `LEAST_ROUNDS` are run in any case.
    """

    model: str
    batch: int
    seed: int
    budget: int | None
    rounds: int = 1
    seconds: float = 0.0
    device: str = "cpu"

    def workload(self, optimizer: str | None = None) -> ScheduledWorkload:
        """Return a new workload, with another optimizer if one is named."""
        model = MODELS[self.model]
        model = model if optimizer is None else replace(model, optimizer=optimizer)
        if self.device == "gpu":
            import cupy

            # Chainer draws masks from it, and parameters that it makes late.
            cupy.random.seed(self.seed)
        return ScheduledWorkload(model, "training", self.batch, Data(self.seed), self.device == "gpu")

    @property
    def least_steps(self) -> int:
        """Least number of steps that are run, about: warm-up, rounds and recordings of three contestants."""
        return 3 * (WARMUP + LEAST_ROUNDS) + 12


class ScheduledWorkload(Workload):
    """A workload whose steps run under a scheduler from `schedule` on."""

    scheduler: Any = None

    def schedule(self, budget: int | None = None, pool: NumpyPool | CupyPool | None = None) -> None:
        """Make a scheduler.

        Parameters
        ----------
        budget
            Bytes, parameters and state included; None: lean.
        pool
            Serves the steps.
        """
        from stowplan.chainer import Scheduler

        # The hook that has contestants take turns within a step reads no parameter.
        self.scheduler = Scheduler(self._optimizer, pool=pool, budget=budget, early_updates=True)

    def twin(self) -> ScheduledWorkload:
        """Return another one with a copy of the parameters, and without a scheduler."""
        twin = super().twin()
        assert isinstance(twin, ScheduledWorkload)
        twin._network = self._network.copy("copy")
        twin._network.cleargrads()
        twin._set_up()
        twin.scheduler = None
        return twin

    def step(self, examples: Any = None) -> None:
        """Run one step, under the scheduler if there is one."""
        if self.scheduler is None:
            super().step(examples)
            return
        with self.scheduler.step():
            super().step(examples)

    def record_graph(self) -> Any:
        """Run four steps, and return their step graph; see `stowplan.chainer.record_graph`."""
        from stowplan.chainer import record_graph

        return record_graph(self._optimizer, super().step)

    def fingerprint(self) -> str:
        """Return a digest of parameters, statistics, the optimizer's state, and where the random stream stands."""
        digest = hashlib.sha256()
        for name, value in self._serialized():
            digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
        stream = np.random.get_state(legacy=False)  # noqa: NPY002 (Chainer draws from it)
        digest.update(stream["state"]["key"].tobytes() + str(stream["state"]["pos"]).encode())
        return digest.hexdigest()


def within_reach(
    run: Callable[[int], ScheduledWorkload], budget: int, retained: int
) -> tuple[ScheduledWorkload, int]:
    """Call `run` with a budget that can be kept; return its result and that budget, retained bytes included.

    Parameters
    ----------
    run
        Runs steps that keep to a number of bytes.
    budget
        Bytes beside the retained ones. If no schedule found keeps to them, a little more than the least found replaces
        them.
    retained
        Bytes of parameters and state.
    """
    for _ in range(ATTEMPTS):
        try:
            return run(budget + retained), budget + retained
        except BudgetError as error:
            budget = int(SLACK * (error.least - retained)) + 1
    raise CannotRunError(f"no schedule kept to {budget:,} bytes, a little more than the least found")


def _scheduled(work: ScheduledWorkload, budget: int) -> ScheduledWorkload:
    """Return a twin after the first of its steps that followed a schedule."""
    twin = work.twin()
    twin.schedule(budget)
    for _ in range(MOST_STEPS):
        twin.step()
        twin.scheduler.wait()
        if twin.scheduler.stats.scheduled:
            return twin
    raise CannotRunError(f"none of {MOST_STEPS} steps could follow a schedule")


def take_turns(task: Task) -> dict[str, Any]:
    """Run the contestants in turns, then record a step; return the measurements.

    Returns
    -------
    dict
        ``turns``: for each round the seconds of a step, by contestant. ``peak``: most bytes alive in the recorded step,
        beside parameters and state. Without a budget ``arena``: the pool's. With one ``budget``: the budget kept to;
        ``predicted``: the schedule's own peak; ``extra_seconds``: the seconds that the schedule says it adds;
        ``seconds``: of all operators once, as recorded; ``recomputed``: operators recomputed in a step.
    """
    work = task.workload()
    work.step()
    lean = work.twin()
    lean.schedule()
    contestants = {CHAINER: work, LEAN: lean}
    found: dict[str, Any] = {}
    pool = CupyPool() if work.on_device else NumpyPool()
    if task.budget is None:
        contestants[POOLED] = work.twin()
        contestants[POOLED].schedule(pool=pool)
        for _ in range(MOST_STEPS):
            contestants[POOLED].step()
            pool.wait()
            if pool.stats.replayed:
                break
        last = lean
    else:
        run = partial(_scheduled, work)
        last, whole = within_reach(run, task.budget, work.retained_bytes)
        found["budget"] = whole - last.scheduler.stats.retained_bytes
        contestants[SCHEDULED] = last
    found["turns"] = [] if work.on_device else _turns(task, contestants)
    found["peak"] = without_small(record(last)[0]).planned_peak
    if task.budget is None:
        found["arena"] = pool.plan().arena_bytes
    else:
        found |= _said(last)
    return found


def _turns(task: Task, contestants: dict[str, ScheduledWorkload]) -> list[Turn]:
    own = {name: contestant.step for name, contestant in contestants.items()}
    steps, take = interleaved(own, task.seed, 1)
    for step in steps.values():
        for _ in range(WARMUP):
            step()
    return rounds_until_clear(take, task.rounds, task.seconds, CHAINER)


def _said(work: ScheduledWorkload) -> dict[str, Any]:
    """Return the schedule's own predictions of its step."""
    (solution,), (recording,) = work.scheduler.solutions, work.scheduler.recordings
    return {
        "predicted": int(solution.peak),
        "extra_seconds": float(solution.extra_seconds),
        "seconds": float(recording.graph.seconds.sum()),
        "recomputed": sum(len(operators) for _, operators in solution.outcome.recomputed),
        "solver": solution.solver,
        "solving_seconds": float(solution.seconds),
    }


def compare_bits(task: Task) -> dict[str, Any]:
    """Train `STEPS` steps with each optimizer: as Chainer does, lean, and under the budget.

    Returns
    -------
    dict
        By optimizer: ``lean`` and ``scheduled``, whether parameters, statistics, state and random stream are
        Chainer's, bit by bit; ``followed`` and ``recomputed``, how many steps followed a schedule, and operators ran
        again in them.
    """
    found = {}
    for optimizer in OPTIMIZERS:
        plain = task.workload(optimizer)
        for _ in range(STEPS):
            plain.step()
        retained, expected = plain.retained_bytes, plain.fingerprint()
        del plain
        row: dict[str, Any] = {LEAN: _trained(task, optimizer, None).fingerprint() == expected}
        if task.budget is not None:
            work, _ = within_reach(partial(_trained, task, optimizer), task.budget, retained)
            row[SCHEDULED] = work.fingerprint() == expected
            row["followed"] = work.scheduler.stats.scheduled
            row["recomputed"] = work.scheduler.stats.recomputed
        found[optimizer] = row
    return found


def _trained(task: Task, optimizer: str, budget: int | None) -> ScheduledWorkload:
    work = task.workload(optimizer)
    work.schedule(budget)
    for _ in range(STEPS):
        work.step()
        work.scheduler.wait()
    return work


RUN: dict[str, Callable[[Task], dict[str, Any]]] = {"turns": take_turns, "bits": compare_bits}


def perform(run: str, **fields: Any) -> dict[str, Any]:
    """Call a function of `RUN` with a `Task` of these fields."""
    enable_chainer()
    return RUN[run](Task(**fields))
