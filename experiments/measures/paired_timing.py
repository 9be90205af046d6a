"""Time a network's steps through the pool beside its steps without it: a process of `experiments.time`.

`perform` returns a list of rounds, each ``{"stowplan": seconds, "NumPy": seconds}``; `experiments.time` takes medians.

On the host the two take turns within a step (`interleave`), on a GPU from step to step. Each has its own gradients and
optimizer's state, from its own allocator. They share the parameters, in one process: two processes of the same program
can differ as long as they live, depending on which of their pages are huge and where in memory they lie, by more than
the difference to be measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from stowplan import CupyPool, NumpyPool
from stowplan.compat import enable_chainer

from ..models import MODELS
from .data import Data
from .medians import standard_error
from .workload import Phase, Workload

OURS = "stowplan"
WARMUP = (5, 2)
"""Steps before the first round: of ours, which warms up, records, confirms and replays twice; and of the other."""
LEAST_ROUNDS, TRUSTED_ROUNDS = 3, 12
"""Rounds that are always run; rounds after which their spread decides when to stop."""
SURE, CLEAR = 0.005, 5
"""Stop when the standard error of the median ratio is below `SURE`, or the median is `CLEAR` of them away from 1."""
Context = Callable[[], AbstractContextManager[object]]
"""Makes the context that a step runs in."""
Step = Callable[[], None]
Turn = dict[str, float]
"""Seconds of a step by contestant, in one round."""
Take = Callable[[], Turn]


@dataclass(frozen=True)
class Task:
    """A comparison of the pool with another allocator.

    Attributes
    ----------
    device, model, phase, batch
        The cell.
    other
        Name of the other allocator.
    seed
        Of parameters and data.
    repeat
        Steps of a turn.
    rounds, seconds
        Most rounds, and the seconds after which no further round begins; `LEAST_ROUNDS` are run in any case. A round
        has a turn of the pool and one of the other, in random order.
    """

    device: str
    model: str
    phase: Phase
    batch: int
    other: str
    seed: int
    repeat: int
    rounds: int
    seconds: float

    @property
    def least_steps(self) -> int:
        """Least number of steps that are run."""
        return sum(WARMUP) + LEAST_ROUNDS * 2 * self.repeat


def is_clear(found: Sequence[float]) -> bool:
    """Whether the median of these ratios is known well enough, or at least on which side of 1 it is."""
    error = standard_error(found)
    return error <= SURE or bool(abs(np.median(found) - 1) >= CLEAR * error)


def rounds_until_clear(take: Take, most: int, seconds: float, other: str) -> list[Turn]:
    """Take turns until it is clear how each contestant's seconds compare with the other's; return all rounds.

    Parameters
    ----------
    take
        Runs a round.
    most, seconds
        Most rounds, and the seconds after which no further round begins; `LEAST_ROUNDS` are run in any case.
    other
        The contestant that all are compared with.
    """
    turns: list[Turn] = []
    until = time.perf_counter() + seconds
    while len(turns) < LEAST_ROUNDS or (len(turns) < most and time.perf_counter() < until):
        turns.append(take())
        names = [name for name in turns[0] if name != other]
        if len(turns) >= TRUSTED_ROUNDS and all(is_clear(ratios(turns, name, other)) for name in names):
            break
    return turns


def interleaved(steps: Mapping[str, Step], seed: int, repeat: int) -> tuple[dict[str, Step], Take]:
    """Return what runs a whole step of each, and what runs a round of them slice by slice."""
    from .interleave import InterleavedStep, alternate

    sliced = {name: InterleavedStep(step) for name, step in steps.items()}
    rng = np.random.default_rng(seed)
    return {name: step.run_step for name, step in sliced.items()}, partial(alternate, sliced, rng, repeat)


def perform(**fields: Any) -> list[Turn]:
    """Run a `Task` of these fields; return for each round the seconds of a step, by allocator."""
    enable_chainer()
    task = Task(**fields)
    gpu, seed = task.device == "gpu", task.seed
    ours, ready, other = (_on_a_gpu if gpu else _on_the_host)(task.other)
    work = Workload(MODELS[task.model], task.phase, task.batch, Data(task.seed), gpu)
    theirs = _within(other, work)
    theirs()
    steps = {OURS: _within(ours, work.twin()), task.other: theirs}
    if gpu:
        take = partial(_one_after_the_other, steps, np.random.default_rng(seed), task.repeat)
    else:
        steps, take = interleaved(steps, seed, task.repeat)
    for step, count in zip(steps.values(), WARMUP, strict=True):
        for _ in range(count):
            step()
            ready()
    return rounds_until_clear(take, task.rounds, task.seconds, task.other)


def _within(context: Context, work: Workload) -> Step:
    def step() -> None:
        with context():
            work.step()

    return step


def _one_after_the_other(steps: Mapping[str, Step], rng: np.random.Generator, repeat: int) -> Turn:
    """Run `repeat` steps of each, in random order; return the seconds of a step of each."""
    turn = {}
    for name in map(str, rng.permutation(list(steps))):
        began = time.perf_counter()
        for _ in range(repeat):
            steps[name]()
        turn[name] = (time.perf_counter() - began) / repeat
    return turn


def ratios(turns: Sequence[Turn], one: str, other: str) -> list[float]:
    """Return one contestant's seconds over another's, for each round."""
    return [turn[one] / turn[other] for turn in turns]


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
