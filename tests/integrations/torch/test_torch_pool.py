"""PyTorch's pool and its surroundings: blocks of before and after, threads, forks, workers that load data, the end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch

from stowplan import TorchPool

from ...children import printed, python
from ...running import in_threads
from .alone import alone

SECONDS = 600
LARGE = 1 << 18


def work(rows: int = 64) -> torch.Tensor:
    """Ask for some blocks of planned sizes, the same ones each time; return one that nobody else has."""
    first = torch.ones(rows, 1024)
    second = (first @ first.T).relu_()
    return torch.cat([first + 1, first * 2]).sum(1) + second.sum()


EXPECTED = float(work().sum())


def run(pool: TorchPool, steps: int) -> None:
    for _ in range(steps):
        with pool.step():
            found = work()
        assert float(found.sum()) == EXPECTED
        pool.wait()


def blocks_of_before_and_after() -> None:
    before = torch.full((LARGE,), 1.0)
    pool = TorchPool()
    with pool:
        run(pool, 6)
        inside = torch.full((LARGE,), 2.0)
        before.resize_(2 * LARGE).fill_(3)
        with pool.step():
            kept = [work(), torch.full((LARGE,), 4.0)]
    assert pool.stats.replayed > 0
    live = pool.stats.live_bytes
    assert live >= 2 * 4 * LARGE
    after = torch.full((LARGE,), 5.0)
    assert pool.stats.live_bytes == live
    assert [int(tensor[-1]) for tensor in (before, inside, kept[1], after)] == [3, 2, 4, 5]
    assert float(kept[0].sum()) == EXPECTED
    del before, inside, kept, after
    assert pool.stats.live_bytes == 0
    again = TorchPool()
    with again:
        run(again, 6)
        of_another = torch.full((LARGE,), 6.0)
    with pool:
        run(pool, 2)
        del of_another
    assert again.stats.live_bytes == pool.stats.live_bytes == 0


def tensors_outlive_the_pool() -> None:
    pool = TorchPool()
    with pool:
        run(pool, 6)
        with pool.step():
            kept = [torch.arange(LARGE), work()]
    del pool
    more = [torch.full((LARGE,), 9) for _ in range(8)]
    assert int(kept[0].sum()) == LARGE * (LARGE - 1) // 2
    assert float(kept[1].sum()) == EXPECTED
    assert all(int(tensor.sum()) == 9 * LARGE for tensor in more)


def frees_on_other_threads() -> None:
    pool = TorchPool()
    with pool:
        run(pool, 6)
        for _ in range(20):
            with pool.step():
                made = [work(), torch.ones(LARGE)]
                in_threads(made.clear)
        asked: list[torch.Tensor] = []
        in_threads(partial(asked.extend, (torch.ones(LARGE) for _ in range(4))))
    assert sum(int(tensor.sum()) for tensor in asked) == 4 * LARGE
    del asked
    assert pool.stats.live_bytes == 0


AT_EXIT = """
import atexit, sys
import torch
from stowplan import TorchPool
pool = TorchPool()
pool.install()
kept = []
for _ in range(6):
    with pool.step():
        kept = [torch.ones(1 << 18), torch.ones(1 << 16) + 1]
    pool.wait()
assert pool.stats.replayed > 0
sys.kept = kept  # goes when the interpreter has gone
atexit.register(lambda: print(float(torch.ones(1 << 18).sum()), flush=True))
"""


def test_the_process_ends_with_the_pool_installed() -> None:
    done = python("-c", AT_EXIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{float(1 << 18)}\n", "")


def forks() -> None:
    pool = TorchPool()
    with pool:
        run(pool, 6)
        with pool.step():
            inherited = [torch.ones(LARGE), work()]
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    assert int(inherited[0].sum()) == LARGE
                    inherited.clear()
                    for _ in range(10):
                        assert float(work().sum()) == EXPECTED
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert float(inherited[1].sum()) == EXPECTED
            inherited.clear()
        run(pool, 4)
        assert pool.stats.live_bytes == 0


PROGRAMS = (blocks_of_before_and_after, tensors_outlive_the_pool, frees_on_other_threads, forks)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_pool_and_its_surroundings(program: Callable[[], None]) -> None:
    alone(program)


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, number: int) -> torch.Tensor:
        return (torch.ones(LARGE) * number).add_(1)


def loads_data(method: str) -> None:
    pool = TorchPool()
    loader = torch.utils.data.DataLoader(
        Rows(), batch_size=4, num_workers=2, multiprocessing_context=method, timeout=SECONDS // 2
    )
    with pool:
        run(pool, 6)
        found = []
        for batch in loader:
            with pool.step():
                found.append(int((batch + work()[0]).sub_(work()[0])[:, 0].sum()))
    assert found == [10 + 16 * i for i in range(6)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_load_data(method: str) -> None:
    alone(loads_data, method)


def runs_out_of_memory() -> Any:
    pool = TorchPool(limit=64 << 20)
    with pool:
        run(pool, 4)
        held = torch.ones(4 << 20)
        with pytest.raises(torch.OutOfMemoryError, match="allocate"):
            torch.ones(32 << 20)
        assert float(held[-1]) == 1
        del held
        run(pool, 4)
        assert pool.stats.reserved_bytes <= 64 << 20
    said = []
    for part in (nullcontext, pool.step):
        with pytest.raises(torch.OutOfMemoryError) as caught, pool, part():
            torch.ones(64 << 20)
        said.append("\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())]))
    return *said, pool.report()


def test_a_limit_that_is_reached_is_said() -> None:
    for text in alone(runs_out_of_memory):
        assert f"the limit of {64 << 20:,} bytes leaves no room for {256 << 20:,} bytes" in text


def test_a_program_that_ctrl_c_stops_at_any_moment_goes_on() -> None:
    for name, outcome in (("torch", "replays"), ("torch-entered", "serves")):
        found = printed("-W", "ignore", "-m", "tests.interrupts", name, 100)
        assert json.loads(found) == {outcome: 100}


@pytest.mark.parametrize("trials", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_what_a_signal_s_handler_raises_reaches_the_program(trials: int) -> None:
    assert json.loads(printed("-W", "ignore", "-m", "tests.signals", "torch", trials, timeout=3600)) == []
