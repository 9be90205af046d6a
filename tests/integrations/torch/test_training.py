"""Networks trained and run with the pool and without it: the same bits, from the plan, without page faults."""

from __future__ import annotations

import functools
import mmap
from typing import Any

import pytest
import torch

from experiments.torch.networks import NETWORKS
from experiments.torch.session import PHASES, TRAINING, Session, Usage, counted
from stowplan import TorchPool

from .alone import alone

PLAIN, MARKED, AUTO = "plain", "marked", "auto"
WARMUP = (4, 4)
STEPS = 3
OPTIMIZER = {"resnet18": "sgd", "unet": "adam", "gpt": "adam", "lstm": "sgd"}
SPARE = 8 << 20  # bytes: the planner's code, which only the pool's process loads, and what heaps differ by


def train(name: str, phase: str, threads: int, way: str) -> tuple[list[Usage], str, list[Any]]:
    """Run a network's steps; return the turns' usage, the digest of its end, and the pool's counts after each turn."""
    torch.set_num_threads(threads)
    pool = TorchPool(auto_step=way == AUTO)
    if way != PLAIN:
        pool.install()
    session = Session(NETWORKS[name], phase, True, OPTIMIZER[name])
    turns, counts = [], []
    for steps in (*WARMUP, STEPS):
        turns.append(session.run(steps, None if way == PLAIN else pool, way == MARKED))
        pool.wait()
        counts.append(pool.stats)
    return turns, session.digest(), counts


@functools.cache
def trained(name: str, phase: str, threads: int, way: str) -> Any:
    return alone(train, name, phase, threads, way)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_bits_from_the_plan(name: str, phase: str, threads: int) -> None:
    check(name, phase, threads, MARKED)


@pytest.mark.parametrize("name", NETWORKS)
def test_steps_that_the_optimizer_tells(name: str) -> None:
    check(name, TRAINING, 1, AUTO)


def test_page_faults_are_seen() -> None:
    pages = 1000

    def touch(steps: int) -> str:
        for _ in range(steps):
            with mmap.mmap(-1, pages * mmap.PAGESIZE) as fresh:
                fresh.madvise(mmap.MADV_NOHUGEPAGE)
                fresh[:: mmap.PAGESIZE] = bytes(pages)
        return ""

    assert counted(3, touch).faults >= 3 * pages


def check(name: str, phase: str, threads: int, way: str) -> None:
    plain, plain_end, _ = trained(name, phase, threads, PLAIN)
    turns, end, counts = trained(name, phase, threads, way)
    assert end == plain_end
    assert [turn.losses for turn in turns] == [turn.losses for turn in plain]
    before, after = counts[-2:]
    requests = after.requests - before.requests
    assert requests >= 10 * STEPS
    assert after.replayed - before.replayed >= 0.99 * requests, after.reasons
    assert after.lower_bound > 0
    assert after.arena_bytes == after.lower_bound
    # Sometimes glibc happens to keep all that it needs; what is left are a few of the process's own (14 have been seen,
    # on a busy machine), where a step's blocks have hundreds of pages.
    assert turns[-1].faults <= max(0.01 * plain[-1].faults, 10 * STEPS)
    assert turns[-1].peak <= plain[-1].peak + SPARE
