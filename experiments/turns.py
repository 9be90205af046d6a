"""The processes of `experiments.time`: a network whose steps run in turns through the pool and without it.

What it runs is a JSON object on the command line, the fields of `Task`; what it prints is a JSON list of rounds, each
``{"stowplan": seconds, "NumPy": seconds}``: medians are taken by who asked.

On the host the two take turns within a step (`experiments.pieces`), on a GPU from step to step. Each has gradients
and an optimizer's state of its own, from its own allocator; parameters they share, in one process: two processes of
the same program can differ for as long as they live, by which of their pages are huge and where in the machine's
memory they lie, and by more than what is to be measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from stowplan import CupyPool, NumpyPool
from stowplan.compat import enable_chainer

from .data import Files, load
from .models import MODELS
from .workload import Phase, Workload

OURS = "stowplan"
WARMUP = (5, 2)
"""Steps before the first round: ours warms up, records, confirms, and replays twice; the other's."""
LEAST_ROUNDS, TRUSTED_ROUNDS = 3, 12
"""Rounds in any case, and before their spread says when to stop."""
SURE, CLEAR = 0.005, 5
"""Standard error of the median ratio, and that many of them from 1, at which more rounds would tell nothing."""
Context = Callable[[], AbstractContextManager[object]]
"""Makes what a step runs inside of."""
Step = Callable[[], None]


@dataclass(frozen=True)
class Task:
    """What is measured.

    Attributes
    ----------
    device, model, phase, batch
        The cell.
    other
        Who else serves the steps.
    files
        The user's.
    repeat
        Steps of a turn.
    rounds, seconds
        At most so many rounds, and none that would begin later than this, but `LEAST_ROUNDS` in any case. Each has a
        turn of the pool and one of the other, in an order that is drawn.
    """

    device: str
    model: str
    phase: Phase
    batch: int
    other: str
    files: Files
    repeat: int
    rounds: int
    seconds: float

    @property
    def least_steps(self) -> int:
        """Steps that are run in any case."""
        return sum(WARMUP) + LEAST_ROUNDS * 2 * self.repeat


def standard_error(values: npt.ArrayLike) -> float:
    """Estimate the standard error of the median of values (n,), normal but for outliers, by their quartiles."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(0.93 * (high - low) / np.sqrt(np.size(values)))  # 0.93: sqrt(pi / 2) / 1.349


def is_clear(found: Sequence[float]) -> bool:
    """Whether these ratios tell where their median is, or at least on which side of 1."""
    error = standard_error(found)
    return error <= SURE or bool(abs(np.median(found) - 1) >= CLEAR * error)


def run(task: Task) -> list[dict[str, float]]:
    """Run a task; return the seconds of a step of each turn, round for round."""
    gpu = task.device == "gpu"
    ours, ready, other = (_on_a_gpu if gpu else _on_the_host)(task.other)
    work = Workload(MODELS[task.model], task.phase, task.batch, load(**task.files), gpu)
    theirs = _within(other, work)
    theirs()
    steps = {OURS: _within(ours, work.twin()), task.other: theirs}
    rng = np.random.default_rng(task.files["seed"])
    if gpu:
        take = partial(_one_after_the_other, steps, rng)
    else:
        from .pieces import Runner, alternate

        runners = {name: Runner(step) for name, step in steps.items()}
        steps = {name: runner.step for name, runner in runners.items()}
        take = partial(alternate, runners, rng)

    for step, count in zip(steps.values(), WARMUP, strict=True):
        for _ in range(count):
            step()
            ready()
    turns: list[dict[str, float]] = []
    until = time.perf_counter() + task.seconds

    def enough() -> bool:
        done = len(turns)
        if done < LEAST_ROUNDS:
            return False
        if done >= task.rounds or time.perf_counter() > until:
            return True
        return done >= TRUSTED_ROUNDS and is_clear(ratios(turns, task.other))

    while not enough():
        turns.append(take(task.repeat))
    return turns


def _within(context: Context, work: Workload) -> Step:
    def step() -> None:
        with context():
            work.step()

    return step


def _one_after_the_other(
    steps: Mapping[str, Step], rng: np.random.Generator, repeat: int
) -> dict[str, float]:
    """Run some steps of each, in an order that is drawn; return the seconds of a step of each."""
    turn = {}
    for name in map(str, rng.permutation(list(steps))):
        began = time.perf_counter()
        for _ in range(repeat):
            steps[name]()
        turn[name] = (time.perf_counter() - began) / repeat
    return turn


def ratios(turns: Sequence[dict[str, float]], other: str) -> list[float]:
    """Return the pool's seconds over the other's, round for round."""
    return [turn[OURS] / turn[other] for turn in turns]


def _on_the_host(_: str) -> tuple[Context, Callable[[], object], Context]:
    pool = NumpyPool()

    @contextmanager
    def ours() -> Iterator[None]:
        with pool, pool.step():
            yield

    return ours, pool.wait, nullcontext


def _on_a_gpu(name: str) -> tuple[Context, Callable[[], object], Context]:
    from cupy import cuda

    pool = CupyPool()
    other = {
        "CuPy": cuda.MemoryPool,
        "CuPy async": cuda.MemoryAsyncPool,
        "CuPy managed": lambda: cuda.MemoryPool(cuda.malloc_managed),
    }[name]()

    @contextmanager
    def ours() -> Iterator[None]:
        with cuda.using_allocator(pool.malloc), pool.step():
            yield

    return ours, pool.wait, lambda: cuda.using_allocator(other.malloc)


def main(argument: str) -> None:
    """Run the task of a command line and print what it took."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else that is printed is taken for the answer
    enable_chainer()
    print(json.dumps(run(Task(**json.loads(argument)))), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
