"""A network whose steps are scheduled, in turns with Chainer's own: what `experiments.schedule` runs apart.

What it runs is a JSON object on the command line, the fields of `Task` and the name of a function in `RUN`; what it
prints is what that returns. As in `experiments.turns` the contestants share the parameters, and hand over to each other
every twentieth of a second; gradients, and the optimizer's state, each has for itself::

    Chainer        the step as it is
    lean           the same under a scheduler without a budget
    lean, pool     ... through a pool                           where no budget is given
    scheduled      the same under a scheduler with the budget   where one is

When the turns are over, one step of the last but the pool's is recorded: its live peak is what it was all for.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from stowplan import NumpyPool, NumpyRecorder, Profile
from stowplan.compat import enable_chainer
from stowplan.errors import BudgetError, ProfileError

from .data import Data, Files, load
from .models import MODELS, Model
from .recordings import without_small
from .turns import LEAST_ROUNDS, TRUSTED_ROUNDS, is_clear
from .workload import Phase, Workload

CHAINER, LEAN, POOLED, SCHEDULED = "Chainer", "lean", "lean, pool", "scheduled"
OPTIMIZERS = ("SGD", "MomentumSGD", "Adam")
STEPS = 10
"""Of each run whose bits are compared."""
WARMUP = 2
"""Steps of each contestant before the first round."""
MOST_STEPS = 12
"""Until a step is scheduled, served by the pool, or like the one before it."""
ATTEMPTS, SLACK = 4, 1.005
"""A budget below the least that was found becomes so many times that least; the next recording's may be a little more.
"""


class CannotScheduleError(Exception):
    """The steps of a network cannot be run under a schedule; the message says why."""


@dataclass(frozen=True)
class Task:
    """What is measured.

    Attributes
    ----------
    model, batch
        The cell, of training on the host.
    files
        The user's.
    budget
        Bytes that a step may have alive beside parameters and state; None: lean.
    rounds, seconds
        At most so many rounds, and none that would begin later than this, but `LEAST_ROUNDS` in any case.
    """

    model: str
    batch: int
    files: Files
    budget: int | None
    rounds: int = 1
    seconds: float = 0.0

    def workload(self, optimizer: str | None = None) -> ScheduledWorkload:
        """Return a workload of its own, with another optimizer if one is named."""
        model = MODELS[self.model]
        model = model if optimizer is None else replace(model, optimizer=optimizer)
        return ScheduledWorkload(model, "training", self.batch, load(**self.files))

    @property
    def least_steps(self) -> int:
        """Steps that are run in any case, about: warm-up, rounds and recordings of three contestants."""
        return 3 * (WARMUP + LEAST_ROUNDS) + 12


class ScheduledWorkload(Workload):
    """A workload whose steps run under a scheduler from `schedule` on."""

    def __init__(self, model: Model, phase: Phase, batch: int, data: Data, gpu: bool = False) -> None:
        super().__init__(model, phase, batch, data, gpu)
        self.scheduler: Any = None

    def schedule(self, budget: int | None = None, pool: NumpyPool | None = None) -> None:
        """Make a scheduler.

        Parameters
        ----------
        budget
            Bytes, parameters and state included; None: lean.
        pool
            Serves the steps.
        """
        from stowplan.chainer import Scheduler

        self.scheduler = Scheduler(self._optimizer, pool=pool, budget=budget)

    def twin(self) -> ScheduledWorkload:
        """Return another one that shares the parameters, and has no scheduler."""
        twin = super().twin()
        assert isinstance(twin, ScheduledWorkload)
        twin.scheduler = None
        return twin

    def step(self, examples: Any = None) -> None:
        """Run one step, which is the scheduler's."""
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
        from chainer.serializers import DictionarySerializer

        digest = hashlib.sha256()
        for target in (self._network, self._optimizer):
            serializer = DictionarySerializer()
            serializer.save(target)
            for name in sorted(serializer.target):
                value = serializer.target[name]
                if value is not None:
                    digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
        stream = np.random.get_state(legacy=False)  # noqa: NPY002 (Chainer draws from it)
        digest.update(stream["state"]["key"].tobytes() + str(stream["state"]["pos"]).encode())
        return digest.hexdigest()


def within_reach(
    run: Callable[[int], ScheduledWorkload], budget: int, retained: int
) -> tuple[ScheduledWorkload, int]:
    """Return what `run` returns for a budget, and the budget, retained bytes included.

    Parameters
    ----------
    run
        Runs steps that keep to a number of bytes.
    budget
        Bytes beside the retained ones. Where no schedule that is found keeps to them, a little more than the least that
        was found takes their place.
    retained
        Bytes of parameters and state.
    """
    for _ in range(ATTEMPTS):
        try:
            return run(budget + retained), budget + retained
        except BudgetError as error:
            budget = int(SLACK * (error.least - retained)) + 1
    raise CannotScheduleError(f"no schedule kept to {budget:,} bytes, a little more than the least found")


def _scheduled(work: ScheduledWorkload, budget: int) -> ScheduledWorkload:
    """Return a twin whose steps follow a schedule by now."""
    twin = work.twin()
    twin.schedule(budget)
    for _ in range(MOST_STEPS):
        twin.step()
        twin.scheduler.wait()
        if twin.scheduler.stats.scheduled:
            return twin
    raise CannotScheduleError(f"none of {MOST_STEPS} steps could follow a schedule")


def record(work: Workload) -> Profile:
    """Record a step, without the blocks that `experiments.recordings` leaves out."""
    recorder = NumpyRecorder()
    with recorder:
        for _ in range(MOST_STEPS):
            with recorder.step():
                work.step()
            try:
                return without_small(recorder.profile())
            except ProfileError:
                continue  # no two equal steps yet
    raise CannotScheduleError(f"no step of {MOST_STEPS} was equal to the one before it")


def take_turns(task: Task) -> dict[str, Any]:
    """Run the contestants in turns, then record a step; return what it took.

    Returns
    -------
    dict
        ``turns``: seconds of a step by contestant, round for round. ``peak``: bytes alive in the recorded step at the
        most, beside parameters and state. ``arena``: the pool's, or, under a budget, ``budget``, the one kept to;
        ``predicted``: the peak as the schedule has it; ``extra_seconds``: that the schedule says it adds; ``seconds``:
        of all operators once, as recorded; ``recomputed``: operators in a step.
    """
    from .pieces import Runner, alternate

    work = task.workload()
    work.step()
    lean = work.twin()
    lean.schedule()
    contestants = {CHAINER: work, LEAN: lean}
    found: dict[str, Any] = {}
    pool = NumpyPool()
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
    runners = {name: Runner(one.step) for name, one in contestants.items()}
    for _ in range(WARMUP):
        for runner in runners.values():
            runner.step()
    rng = np.random.default_rng(task.files["seed"])
    found["turns"] = _rounds(task, lambda: alternate(runners, rng, 1))
    profile = record(last)
    found["peak"] = profile.live_peak
    if task.budget is None:
        found["arena"] = pool.plan().arena_bytes
    else:
        found |= _said(last)
    return found


def _rounds(task: Task, take: Callable[[], dict[str, float]]) -> list[dict[str, float]]:
    turns: list[dict[str, float]] = []
    until = time.perf_counter() + task.seconds
    while len(turns) < LEAST_ROUNDS or (len(turns) < task.rounds and time.perf_counter() < until):
        turns.append(take())
        others = [name for name in turns[0] if name != CHAINER]
        if len(turns) >= TRUSTED_ROUNDS and all(is_clear(over_chainer(turns, name)) for name in others):
            break
    return turns


def over_chainer(turns: list[dict[str, float]], name: str) -> list[float]:
    """Return a contestant's seconds over Chainer's, round for round."""
    return [turn[name] / turn[CHAINER] for turn in turns]


def _said(work: ScheduledWorkload) -> dict[str, Any]:
    """Return what the schedule in use says of its step."""
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


def main(argument: str) -> None:
    """Run the task of a command line and print what it found."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else that is printed is taken for the answer
    enable_chainer()
    asked = json.loads(argument)
    print(json.dumps(RUN[asked.pop("run")](Task(**asked))), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
