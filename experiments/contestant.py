"""One contestant of `experiments.time`: a process that runs a step for each line of input and tells its seconds.

What it runs is a JSON object on the command line, the fields of `Task`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from stowplan import CupyPool, NumpyPool
from stowplan.compat import enable_chainer

from .data import Files, load
from .models import MODELS
from .workload import Phase, Workload

OURS = "stowplan"


@dataclass(frozen=True)
class Task:
    """A cell, who runs it, and the user's files."""

    device: str
    model: str
    phase: Phase
    batch: int
    contestant: str
    files: Files


@dataclass(frozen=True)
class Memory:
    """Where a contestant's memory comes from.

    Attributes
    ----------
    whole
        What the program runs in.
    step
        Called for each step, which runs inside what it returns.
    ready
        Called between steps.
    """

    whole: AbstractContextManager[Any]
    step: Callable[[], AbstractContextManager[Any]] = nullcontext
    ready: Callable[[], object] = lambda: None


def memory_of(task: Task) -> Memory:
    """Return a contestant's memory."""
    if task.device == "gpu":
        return _gpu_memory(task.contestant)
    if task.contestant != OURS:
        return Memory(nullcontext())
    pool = NumpyPool()
    return Memory(pool, pool.step, pool.wait)


def _gpu_memory(contestant: str) -> Memory:
    from cupy import cuda

    if contestant == OURS:
        ours = CupyPool()
        cuda.set_allocator(ours.malloc)
        return Memory(nullcontext(), ours.step, ours.wait)
    pool = {
        "CuPy": cuda.MemoryPool,
        "CuPy async": cuda.MemoryAsyncPool,
        "CuPy managed": lambda: cuda.MemoryPool(cuda.malloc_managed),
    }[contestant]()
    cuda.set_allocator(pool.malloc)
    return Memory(nullcontext())


def main(argument: str) -> None:
    """Run a step for each line of the input, until it ends."""
    task = Task(**json.loads(argument))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else that is printed is taken for an answer
    enable_chainer()
    memory = memory_of(task)
    with memory.whole:
        work = Workload(MODELS[task.model], task.phase, task.batch, load(**task.files), task.device == "gpu")
        for _ in sys.stdin:
            began = time.perf_counter()
            with memory.step():
                work.step()
            print(time.perf_counter() - began, file=answers, flush=True)
            memory.ready()


if __name__ == "__main__":
    main(sys.argv[1])
