"""Streams and events of the simulated device: what is ordered, and that what is not goes wrong."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import pytest

from tests.device.hip_process import Hip, on_device

SCHEDULES = ["sync", "lazy", "eager", "adversarial"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "program", ["in_order", "events", "legacy", "barriers", "callbacks", "queries", "many_threads"]
)
def test_what_is_ordered_is_right(program: str, schedule: str) -> None:
    on_device(SIMHIP_SCHEDULE=schedule, SIMHIP_DELAY="100")(globals()[program])()


def in_order(hip: Hip) -> None:
    stream, block, result = hip.stream(), hip.malloc(64), hip.malloc(64)
    for value in range(100):
        hip.fill(stream, block, value)
        hip("MemcpyAsync", result, block, 64, 3, stream)
    hip("StreamSynchronize", stream)
    assert hip.read(result) == [99] * 16


def events(hip: Hip) -> None:
    streams, blocks = [hip.stream() for _ in range(4)], [hip.malloc(64) for _ in range(4)]
    hip.fill(streams[0], blocks[0], 1)
    for value in range(1, 30):
        before, after = streams[(value - 1) % 4], streams[value % 4]
        hip.order(before, after)
        hip.copy(after, blocks[(value - 1) % 4], blocks[value % 4])
    last = hip.event(streams[29 % 4])
    hip("EventSynchronize", last)
    assert hip.read(blocks[29 % 4]) == [1] * 16


def legacy(hip: Hip) -> None:
    blocking, block = [hip.stream(non_blocking=False) for _ in range(2)], hip.malloc(64)
    for value in range(30):
        hip.fill(blocking[value % 2], block, value)
        hip.fill(hip.legacy, block, value + 0.5)
        hip.fill(hip.per_thread, block, value + 0.75)
        hip.fill(hip.legacy, block, value + 1)
    hip("StreamSynchronize", hip.legacy)
    assert hip.library.simhip_pending() == 0
    assert hip.read(block) == [30] * 16


def barriers(hip: Hip) -> None:
    numbers, result = hip.malloc(4 * 256), hip.malloc(4)
    hip("Memcpy", numbers, (ctypes.c_int * 256)(*range(256)), 4 * 256, 1)
    hip.launch("sum", 0, numbers, result, threads=256, shared=4 * 256)
    total = ctypes.c_int()
    hip("Memcpy", ctypes.byref(total), result, 4, 2)
    assert total.value == sum(range(256))


def callbacks(hip: Hip) -> None:
    seen: list[Any] = []
    stream, block = hip.stream(), hip.malloc(64)
    host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append("host"))
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda handle, status, data: seen.append((handle, status, data))
    )
    hip.fill(stream, block, 1)
    hip("LaunchHostFunc", stream, host_function, 0)
    hip("StreamAddCallback", stream, callback, 7, 0)
    hip("StreamSynchronize", stream)
    assert seen == ["host", (stream, 0, 7)]


def queries(hip: Hip) -> None:
    stream, block = hip.stream(), hip.malloc(64)
    hip.fill(stream, block, 1)
    begin = hip.event(stream)
    hip.fill(stream, block, 2)
    end = hip.event(stream)
    limit = time.monotonic() + 30
    while hip.library.hipEventQuery(ctypes.c_void_p(end)) != 0:
        assert time.monotonic() < limit
    hip("StreamQuery", stream)
    assert hip.read(block) == [2] * 16
    assert hip.number("EventElapsedTime", begin, end, of=ctypes.c_float) >= 0


def many_threads(hip: Hip) -> None:
    results: list[list[float]] = []

    def work(value: int) -> None:
        block, result = hip.malloc(64), hip.malloc(64)
        for _ in range(20):
            hip.fill(hip.per_thread, block, value)
            hip.copy(hip.per_thread, block, result)
        hip("StreamSynchronize", hip.per_thread)
        results.append(hip.read(result))
        hip("Free", block)

    hip.fill(0, hip.malloc(64), 0)  # the module is loaded
    threads = [threading.Thread(target=work, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [[float(value)] * 16 for value in range(8)]


@on_device()
def test_a_host_function_runs_on_a_thread_of_the_driver_s(hip: Hip) -> None:
    seen: list[int] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(threading.get_native_id()))
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda *_: seen.append(threading.get_native_id())
    )
    hip("LaunchHostFunc", 0, function, 0)
    hip("StreamAddCallback", 0, callback, 0, 0)
    hip("DeviceSynchronize")
    assert len(seen) == 2
    assert threading.get_native_id() not in seen


@on_device(SIMHIP_SCHEDULE="adversarial")
def test_each_thread_s_default_stream_is_its_own(hip: Hip) -> None:
    seen = []
    for _ in range(2):
        thread = threading.Thread(
            target=lambda: seen.append(hip.error("EventQuery", hip.event(hip.per_thread)))
        )
        thread.start()
        thread.join()
    assert hip.library.simhip_pending() in (1, 2)  # of streams that are gone; a query may run one
    hip("DeviceSynchronize")
    assert hip.library.simhip_pending() == 0


@on_device()
def test_a_non_blocking_stream_does_not_wait_for_legacy(hip: Hip) -> None:
    stream, block = hip.stream(), hip.malloc(64)
    hip.fill(stream, block, 1)
    hip("StreamSynchronize", hip.legacy)
    assert hip.library.simhip_pending() == 1


@on_device()
def test_an_event_that_was_never_recorded_holds_nothing_up(hip: Hip) -> None:
    stream, event = hip.stream(), hip.new("EventCreateWithFlags", 2)
    hip("StreamWaitEvent", stream, event, 0)
    hip("EventSynchronize", event)
    hip("EventQuery", event)
    assert (
        hip.error("EventElapsedTime", ctypes.byref(ctypes.c_float()), event, event) == "hipErrorInvalidHandle"
    )


@on_device()
def test_work_of_a_destroyed_stream_is_done(hip: Hip) -> None:
    stream, block = hip.stream(), hip.malloc(64)
    hip.fill(stream, block, 8)
    hip("StreamDestroy", stream)
    hip("DeviceSynchronize")
    assert hip.read(block) == [8] * 16


@on_device()
def test_pageable_memory_is_read_at_the_call(hip: Hip) -> None:
    stream, block, data = hip.stream(), hip.malloc(64), (ctypes.c_float * 16)(*[3] * 16)
    hip("MemcpyAsync", block, data, 64, 1, stream)
    data[:] = [4] * 16
    hip("StreamSynchronize", stream)
    assert hip.read(block) == [3] * 16


@on_device()
def test_pinned_memory_is_read_in_order(hip: Hip) -> None:
    stream, block, pinned = hip.stream(), hip.malloc(64), hip.new("HostMalloc", 64, 0)
    data = (ctypes.c_float * 16).from_address(pinned)
    hip("MemcpyAsync", block, pinned, 64, 1, stream)
    data[:] = [4] * 16
    hip("StreamSynchronize", stream)
    assert hip.read(block) == [4] * 16


# ------------------------------------------------------------------------------------------- races that must be lost


def read_late(hip: Hip, *, ordered: bool, ticks: int) -> float:
    """Return what a side stream reads of a block of ones, over which the main stream writes twos."""
    main, side = hip.stream(), hip.stream()
    block, result = hip.malloc(64), hip.malloc(64)
    hip.fill(main, block, 1)
    hip.order(main, side)
    hip.copy(side, block, result, ticks=ticks)
    if ordered:
        hip.order(side, main)
    hip.fill(main, block, 2)
    hip("DeviceSynchronize")
    return hip.read(result, 1)[0]


@on_device(SIMHIP_SCHEDULE="adversarial")
def test_the_race_is_lost_for_every_seed(hip: Hip) -> None:
    for seed in range(20):
        hip.library.simhip_reseed(ctypes.c_uint64(seed))
        for ticks in (0, 100_000_000):
            assert read_late(hip, ordered=False, ticks=ticks) == 2
            assert read_late(hip, ordered=True, ticks=ticks) == 1


@on_device(SIMHIP_SCHEDULE="lazy")
def test_a_late_kernel_loses_it_for_every_seed(hip: Hip) -> None:
    for seed in range(20):
        hip.library.simhip_reseed(ctypes.c_uint64(seed))
        assert read_late(hip, ordered=False, ticks=100_000_000) == 2
        assert read_late(hip, ordered=True, ticks=100_000_000) == 1


@on_device(SIMHIP_SCHEDULE="lazy")
def test_a_random_order_loses_some_races(hip: Hip) -> None:
    found = [read_late(hip, ordered=False, ticks=0) for _ in range(100)]
    assert 10 < found.count(2) < 90
    assert found.count(1) + found.count(2) == 100


# ------------------------------------------------------------------------------------------------------- deadlocks


@on_device(
    says="deadlock: host function on stream 1 of device 0 waits for host function, which runs, on stream 1"
)
def test_work_that_waits_for_itself_is_refused(hip: Hip) -> None:
    stream, seen = hip.stream(), []
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda _: seen.append(hip.error("StreamSynchronize", stream))
    )
    hip("LaunchHostFunc", stream, wait, 0)
    hip("StreamSynchronize", stream)
    assert seen == ["hipErrorUnknown"]


@on_device(says="deadlock: ")
def test_two_callbacks_that_wait_for_each_other(hip: Hip) -> None:
    streams, seen, both = [hip.stream(), hip.stream()], [], threading.Barrier(2)

    def wait_for(other: int) -> None:
        both.wait()
        hip.library.hipStreamSynchronize.argtypes = [ctypes.c_void_p]
        seen.append(hip.library.hipStreamSynchronize(streams[other]))

    functions = [
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _, other=other: wait_for(other)) for other in (1, 0)
    ]
    for stream, function in zip(streams, functions, strict=True):
        hip("LaunchHostFunc", stream, function, 0)
    threads = [threading.Thread(target=hip, args=("StreamSynchronize", stream)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [0, 999]  # one call fails, and the other's stream goes on


@on_device(SIMHIP_TIMEOUT="10", SIMHIP_SCHEDULE="eager", says="nothing was done for SIMHIP_TIMEOUT seconds")
def test_a_wait_for_what_does_not_end_is_refused(hip: Hip) -> None:
    stream, goes_on = hip.stream(), threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: goes_on.wait())
    hip("LaunchHostFunc", stream, function, 0)
    while hip.library.simhip_pending() == 1 and not goes_on.wait(0.2):
        break
    assert hip.error("StreamSynchronize", stream) == "hipErrorUnknown"
    goes_on.set()
    hip("StreamSynchronize", stream)
