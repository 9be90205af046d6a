"""TorchCudaPool over a simulated CUDA: streams, threads, limits, failures, captures, forks. No GPU, and no PyTorch."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from stowplan import TorchPool
from stowplan.allocator.backends.torch_cuda_pool import HOOKS
from stowplan.errors import MissingDependencyError, PoolError

from ..children import printed
from ..running import in_threads, run
from .simulated_cuda import (
    FUNCTIONS,
    SimulatedTorchCudaPool,
    StreamsTorchCudaPool,
    Tensor,
)
from .simulated_device import Stream
from .test_streams_machine import StreamsMachine

MAIN, SIDE = Stream(0), Stream(64)
PAGE = 2 << 20
ROOT = Path(__file__).resolve().parents[2]


class TorchCudaStreamsMachine(StreamsMachine):
    make_pool = StreamsTorchCudaPool


TestTorchCudaStreams = TorchCudaStreamsMachine.TestCase
TestTorchCudaStreams.settings = settings(settings.get_profile("usual"), stateful_step_count=30)


@pytest.fixture
def pool() -> Iterator[StreamsTorchCudaPool]:
    pool = StreamsTorchCudaPool(warmup=0)
    yield pool
    gc.collect()
    assert not pool.cuda.errors


def chain(pool: StreamsTorchCudaPool) -> None:
    """Two blocks at a time."""
    alive: list[Tensor] = []
    for size in (3000, 700, 5000, 900):
        alive = [*alive[-1:], pool.empty(size)]


def test_every_hook_is_exported() -> None:
    for name in (*HOOKS.values(), "stow_cuda_malloc", "stow_cuda_free"):
        assert getattr(FUNCTIONS, name)


def test_a_replayed_step_asks_cuda_for_nothing(pool: StreamsTorchCudaPool) -> None:
    run(pool, 5, lambda: chain(pool))
    before = list(pool.cuda.calls)
    run(pool, 3, lambda: chain(pool))
    assert pool.cuda.calls == before
    stats = pool.stats
    assert stats.replayed >= 12
    assert stats.arena_bytes == stats.lower_bound


def test_no_bytes_are_no_block(pool: StreamsTorchCudaPool) -> None:
    assert Tensor(pool, 0).ptr == 0
    assert pool.cuda.calls == []


def test_a_step_of_the_process_has_the_requests_of_all_threads(pool: StreamsTorchCudaPool) -> None:
    def work() -> None:
        kept = pool.empty(3000)
        in_threads(lambda: chain(pool))  # as the backward pass
        del kept

    run(pool, 5, work)
    before = pool.stats
    run(pool, 3, work)
    assert pool.stats.reasons == before.reasons
    assert pool.stats.replayed == before.replayed + 15


def test_a_stream_is_waited_for_on_the_device_alone(pool: StreamsTorchCudaPool) -> None:
    device = pool.cuda.device

    def work() -> None:
        batch = pool.empty(3000)
        device.follow(SIDE, device.event(MAIN))
        device.use(batch, SIDE)
        pool.record_stream(batch, SIDE)
        del batch
        pool.empty(3000)

    run(pool, 6, work)
    pool.cuda.calls.clear()
    run(pool, 1, work)
    assert pool.cuda.calls.count("stream_wait_event") >= 1
    assert "device_synchronize" not in pool.cuda.calls


@pytest.mark.parametrize("calls", [1, *(pytest.param(calls, marks=pytest.mark.slow) for calls in (2, 3))])
def test_one_failure_of_cuda_at_any_call_ends_neither_the_program_nor_planning(calls: int) -> None:
    def refuse(name: str, size: int) -> bool:
        refused[0] -= 1
        return refused[0] == 0

    def work() -> None:
        batch = pool.empty(3000)
        device.follow(SIDE, device.event(MAIN))
        device.use(batch, SIDE)
        pool.record_stream(batch, SIDE)
        del batch
        chain(pool)

    while True:
        pool, refused = StreamsTorchCudaPool(warmup=0), [calls]
        device, pool.cuda.fails = pool.cuda.device, refuse
        for _ in range(4):
            try:
                run(pool, 1, work)
            except MemoryError:  # as without the pool, where it was a block's that CUDA had no memory for
                assert refused[0] <= 0
        if refused[0] > 0:
            break
        before = pool.stats.replayed
        run(pool, 4, work)
        assert pool.stats.replayed > before, calls
        gc.collect()
        assert not pool.cuda.errors
        calls += 3
    assert calls > 10


def test_streams_of_each_thread_s_own_are_refused(pool: StreamsTorchCudaPool) -> None:
    with pytest.raises(PoolError, match="each thread's own"):
        pool.record_stream(pool.empty(10), Stream(2))


def test_memory_of_a_captured_stream_waits_for_its_end(pool: StreamsTorchCudaPool) -> None:
    tensor, device = pool.empty(3000), pool.cuda.device
    device.captured = MAIN.ptr
    del tensor
    assert pool.cuda.live_bytes == PAGE
    other = pool.empty(500)  # in a page of its own: the graph may be launched as long as there is the pool
    assert pool.cuda.live_bytes == 2 * PAGE
    device.captured = None
    pool.free_all()
    assert pool.cuda.live_bytes == PAGE
    del other
    pool.free_all()
    assert pool.cuda.live_bytes == PAGE


def test_a_limit_may_be_a_share_of_the_device() -> None:
    pool = StreamsTorchCudaPool(warmup=0, limit="50%")
    assert pool._lanes().backend.limit == 1 << 31


def test_an_arena_makes_room_for_a_request(pool: StreamsTorchCudaPool) -> None:
    run(pool, 6, lambda: chain(pool))
    assert pool.stats.arena_bytes > 0
    before, size = pool.cuda.live_bytes, 100 * PAGE
    pool.cuda.fails = lambda name, size: pool.cuda.live_bytes + size > 100 * PAGE
    assert before > 0
    assert pool.empty(size).nbytes == size
    assert pool.stats.arena_bytes == 0
    before = pool.stats.replayed
    run(pool, 2, lambda: chain(pool))
    assert pool.stats.replayed > before


def test_a_share_holds_for_an_arena_that_comes_before_the_first_request() -> None:
    """As one of a plan that was loaded: what the share is of is asked for then."""
    pool = StreamsTorchCudaPool(warmup=0, limit="0.0001%")  # of 4 GiB
    backend = pool._lanes().backend
    assert not backend.reserve(0, 1 << 20)
    assert backend.limit == (1 << 32) // 10**6


def test_what_no_device_has_is_refused(pool: StreamsTorchCudaPool) -> None:
    for size in (1 << 62, (1 << 63) - 1):
        with pytest.raises(MemoryError):
            Tensor(pool, size)
    assert pool.stats.live_bytes == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scope": "lane"}, "one of: process, thread"),
        ({"small": 100}, "any size"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(PoolError, match=said):
        SimulatedTorchCudaPool(**options)


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_the_pool_says_so() -> None:
    with pytest.raises(MissingDependencyError, match="needs PyTorch"):
        TorchPool(device="cuda")


@pytest.mark.parametrize("used", [True, False])
def test_a_fork_of_a_process_that_has_used_the_pool_is_refused(
    pool: StreamsTorchCudaPool, used: bool
) -> None:
    if used:
        kept = pool.empty(100)
    child = os.fork()
    if child == 0:
        try:
            try:
                with pool.step():
                    done = pool.empty(200).nbytes == 200 and not used
            except PoolError as error:
                done = used and "does not survive a fork" in str(error)
                with pytest.raises(MemoryError):
                    pool.empty(10)
                del kept
            os._exit(0 if done else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


WITHOUT_A_DRIVER = """
from stowplan.allocator import _core
try:
    _core.CudaPools(_core.Scope.process)
    print("there is one")
except _core.PoolError as error:
    print(error)
"""


def test_without_a_driver_the_pool_says_what_it_lacks() -> None:
    said = printed("-c", WITHOUT_A_DRIVER)
    if said.strip() == "there is one":
        pytest.skip("there is a driver here: tests/gpu has its tests")
    assert said.strip() == "no CUDA driver with libcuda.so.1; expected libcuda.so.1 of CUDA 11.3 or later"
