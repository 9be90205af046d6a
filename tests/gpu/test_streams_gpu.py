"""CupyPool on several streams of a device, and its steps in CUDA graphs.

The race is a real one: a kernel on a side stream sleeps before it reads a block that the program has dropped, while the
main stream writes to the block that takes its place. With the ordering switched off the side stream reads the wrong
bytes.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from stowplan import CupyPool
from stowplan.allocator.backends.device_streams import DeviceStreams

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


class Unordered(DeviceStreams):
    """The ordering check, switched off: a stream that is to wait does not."""

    def wait(self, stream: int, event: Any) -> None:
        pass


unordered = functools.cache(Unordered)  # it stays, as a device's streams do


class UnorderedPool(CupyPool):
    def _streams(self, device: int) -> DeviceStreams:
        return unordered(device)


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


# ------------------------------------------------------------------------------------------------------ CUDA graphs


def test_a_replayed_step_is_captured_into_a_graph(cupy: Any) -> None:
    import numpy as np

    pool = CupyPool()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.set_allocator(pool.malloc)
    with stream:
        x = cupy.arange(N, dtype=cupy.float32)
        out = cupy.empty_like(x)

        def work() -> None:
            shifted = x * 2 + 1
            cupy.multiply(shifted, shifted, out=out)

        run(pool, 6, work)
        stream.synchronize()
        pool.wait()
        before, taken = pool.stats, pool.total_bytes()
        stream.begin_capture()
        with pool.step():
            work()
        graph = stream.end_capture()
        assert pool.stats.reasons == before.reasons
        assert pool.stats.replayed > before.replayed
        assert pool.total_bytes() == taken
        for _ in range(3):
            x += 1
            graph.launch(stream)
            host = x.get()
            assert np.array_equal(out.get(), (host * 2 + 1) * (host * 2 + 1))
        run(pool, 2, work)  # and the step runs on without the graph
        assert pool.stats.reasons == before.reasons
    stream.synchronize()


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
