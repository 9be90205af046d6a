"""TorchCudaPool over a simulated CUDA: streams, threads, limits, failures, captures, forks. No GPU, and no PyTorch."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from stowplan import TorchPool
from stowplan.allocator._core import CudaPools, Scope
from stowplan.allocator.backends.torch_cuda_pool import HOOKS
from stowplan.errors import MissingDependencyError, PoolError

from ..running import run
from .simulated_cuda import FUNCTIONS, SimulatedTorchCudaPool, StreamsTorchCudaPool, Tensor
from .simulated_device import Stream
from .test_streams_machine import StreamsMachine

MAIN, SIDE = Stream(0), Stream(64)
PAGE = 2 << 20


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


def test_bad_options_are_refused() -> None:
    with pytest.raises(PoolError, match="one of: process, thread"):
        SimulatedTorchCudaPool(scope="lane")
    with pytest.raises(PoolError, match="any size"):
        SimulatedTorchCudaPool(small=100)


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


def test_without_a_driver_the_pool_says_what_it_lacks() -> None:
    said = ""
    try:
        CudaPools(Scope.process)
    except PoolError as error:
        said = str(error)
    if not said:
        pytest.skip("there is a driver here: tests/gpu has its tests")
    assert said == "no CUDA driver with libcuda.so.1; expected libcuda.so.1 of CUDA 11.3 or later"
