"""CupyPool on several streams of a device.

The race is a real one: a kernel on a side stream sleeps before it reads a block that the program has dropped, while the
main stream writes to the block that takes its place. With the ordering switched off the side stream reads the wrong
bytes.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stowplan import CupyPool, PoolError

from ..device.other_driver import driver_without
from ..running import run

pytestmark = pytest.mark.gpu

N = 1 << 18
CYCLES = 100_000_000  # some 50 ms: far longer than the host takes to hand out the place again

LATE_COPY = r"""
extern "C" __global__ void late_copy(const float* from, float* to, int n, long long cycles) {
  const long long began = clock64();
  while (clock64() - began < cycles) {}
  for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
}
"""


class UnorderedPool(CupyPool):
    """The ordering check, switched off: a stream that is to wait does not."""

    def _table(self) -> int:
        return driver_without("stream_wait_event")


def raced(cupy: Any, pool: CupyPool) -> float:
    """Return what a side stream reads of a block of ones, dropped while it was at it."""
    main, side = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    late_copy = cupy.RawKernel(LATE_COPY, "late_copy")
    result = cupy.zeros(N, cupy.float32)
    cupy.cuda.Device().synchronize()
    places: list[tuple[int, int]] = []

    def work() -> None:
        with main:
            batch = cupy.full(N, 1, cupy.float32)
            side.wait_event(main.record())
            with side:
                late_copy((1,), (1024,), (batch, result, N, CYCLES))
            pool.record_stream(batch, side)
            place = batch.data.ptr
            del batch
            other = cupy.full(N, 2, cupy.float32)
            places.append((place, other.data.ptr))

    cupy.cuda.set_allocator(pool.malloc)
    run(pool, 6, work)
    cupy.cuda.Device().synchronize()
    pool.wait()
    run(pool, 1, work)  # what streams held until now, the arena may have
    result.fill(0)
    cupy.cuda.Device().synchronize()
    before = pool.stats
    run(pool, 1, work)
    cupy.cuda.Device().synchronize()
    assert pool.stats.reasons == before.reasons
    assert places[-1][0] == places[-1][1] == places[-2][0]
    return float(result.get().max())


def test_a_place_is_handed_on_once_the_other_stream_is_done(cupy: Any) -> None:
    assert raced(cupy, CupyPool()) == 1


def test_with_the_ordering_switched_off_the_race_is_lost(cupy: Any) -> None:
    assert raced(cupy, UnorderedPool()) == 2


def test_upstream_s_memory_too_waits_for_other_streams(cupy: Any) -> None:
    """In no step: the block is held, and CuPy's pool has it back later."""
    pool = CupyPool()
    main, side = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    late_copy = cupy.RawKernel(LATE_COPY, "late_copy")
    result = cupy.zeros(N, cupy.float32)
    cupy.cuda.Device().synchronize()
    cupy.cuda.set_allocator(pool.malloc)
    with main:
        batch = cupy.full(N, 1, cupy.float32)
        side.wait_event(main.record())
        with side:
            late_copy((1,), (1024,), (batch, result, N, CYCLES))
        pool.record_stream(batch, side)
        del batch
        other = cupy.full(N, 2, cupy.float32)
    cupy.cuda.Device().synchronize()
    assert (float(result.get().max()), float(other.get().min())) == (1, 2)
    del other
    pool.free_all_blocks()
    assert pool.total_bytes() == pool.used_bytes() == 0


def test_chainer_s_transfers_are_replayed_and_change_no_value(cupy: Any, chainer: Any) -> None:
    import numpy as np
    from chainer.dataset.convert import ConcatWithAsyncTransfer

    batches = [[np.full(10_000, i + j, np.float32) for j in range(8)] for i in range(12)]
    pool = CupyPool()
    cupy.cuda.set_allocator(pool.malloc)
    converter = ConcatWithAsyncTransfer()
    found = []
    for batch in batches:
        with pool.step():
            x = converter([(row,) for row in batch], device=0)[0]
            found.append(float((x * 2).sum()))
        pool.wait()
    assert found == [float((np.stack(batch) * 2).sum()) for batch in batches]
    assert pool.stats.replayed > 0


def test_a_stream_of_another_library_may_end(cupy: Any) -> None:
    pool, runtime = CupyPool(), cupy.cuda.runtime
    cupy.cuda.set_allocator(pool.malloc)
    for _ in range(3):
        handle = runtime.streamCreate()
        with cupy.cuda.ExternalStream(handle):
            array = cupy.arange(1000)
            assert int(array.sum()) == 499_500
        del array
        runtime.streamDestroy(handle)
        # The simulated device aborts if the pool uses the handle of a stream that was destroyed.
        with cupy.cuda.Stream(non_blocking=True):
            lent = cupy.arange(1000)
        handle = runtime.streamCreate()
        other = cupy.cuda.ExternalStream(handle)
        pool.record_stream(lent, other)
        del other
        runtime.streamDestroy(handle)
        del lent
        with pool.step():
            assert int(cupy.arange(1000).sum()) == 499_500
        pool.free_all_blocks()
    assert pool.stats.live_bytes == 0


def test_threads_may_drop_streams_while_others_ask(cupy: Any) -> None:
    pool = CupyPool()

    def batches() -> None:
        cupy.cuda.Device(0).use()
        with cupy.cuda.using_allocator(pool.malloc):
            for _ in range(100):
                with cupy.cuda.Stream(non_blocking=True):
                    cupy.empty(1000)

    # The simulated device aborts where a stream is asked that has gone.
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(batches) for _ in range(8)]:
            done.result()
    assert pool.stats.live_bytes == 0


def test_a_last_reference_may_die_in_a_host_function(cupy: Any) -> None:
    pool = CupyPool()
    main, side = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)

    def work() -> None:
        with main:
            lent, other = cupy.zeros(N), cupy.zeros(N)
            pool.record_stream(lent, side)
            box = [lent, other]
            del lent, other
            main.launch_host_func(list.clear, box)  # where no function of CUDA's may be called
            del box
            main.synchronize()

    cupy.cuda.set_allocator(pool.malloc)
    work()
    run(pool, 6, work)
    pool.wait()
    assert pool.stats.live_bytes == 0
    assert pool.stats.replayed > 0


def test_a_new_thread_s_own_stream_has_the_memory_of_one_that_ended(cupy: Any) -> None:
    pool = CupyPool()

    def epoch() -> None:
        cupy.cuda.Device(0).use()
        with cupy.cuda.Stream.ptds, cupy.cuda.using_allocator(pool.malloc):
            for _ in range(6):
                with pool.step("job"):
                    doubled = cupy.ones(1 << 21) * 2
                    del doubled
            cupy.cuda.Stream.ptds.synchronize()

    for _ in range(12):
        thread = threading.Thread(target=epoch)
        thread.start()
        thread.join()
        # Python's has ended, and now the system's.
        while Path(f"/proc/self/task/{thread.native_id}").exists():
            time.sleep(0.001)
        pool.wait()
    assert pool.stats.arena_bytes <= 32 << 20  # two arrays, of one thread


def test_an_arena_of_an_allocator_in_stream_s_order(cupy: Any) -> None:
    if cupy.cuda.runtime.is_hip:
        pytest.skip("malloc_async is CUDA's")
    pool = CupyPool(cupy.cuda.malloc_async)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.set_allocator(pool.malloc)
    for number in range(12):  # a fault of the simulated device where the arena is not there yet
        with pool.step(), stream:
            total = (cupy.full(N, number) + 1).sum()
        with stream:
            assert int(total) == N * (number + 1)
        pool.wait()
    assert pool.stats.replayed > 0


def test_memory_that_would_be_a_part_of_a_graph_is_refused_in_a_capture(cupy: Any, nvidia: None) -> None:
    pool, stream = CupyPool(cupy.cuda.malloc_async), cupy.cuda.Stream(non_blocking=True)
    with stream, cupy.cuda.using_allocator(pool.malloc):
        array = cupy.zeros(N)
        array += 1  # its kernel is loaded
        stream.begin_capture()
        with pytest.raises(PoolError, match="launched once"):
            cupy.empty(N)
        array += 1
        graph = stream.end_capture()
        for _ in range(2):
            graph.launch(stream)
        assert float(array.sum()) == 3 * N
