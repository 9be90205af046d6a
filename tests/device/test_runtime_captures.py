"""Captures and graphs of the simulated device: what CUDA refuses is refused, and breaks the capture."""

from __future__ import annotations

import ctypes
import threading

import pytest

from tests.device.hip_process import Hip, on_device

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
UNSUPPORTED = "hipErrorStreamCaptureUnsupported"
IMPLICIT = "hipErrorStreamCaptureImplicit"
INVALIDATED = "hipErrorStreamCaptureInvalidated"
NONE, ACTIVE, BROKEN = 0, 1, 2


def begun(hip: Hip, mode: int = RELAXED, *, non_blocking: bool = True) -> int:
    stream = hip.stream(non_blocking=non_blocking)
    hip("StreamBeginCapture", stream, mode)
    return stream


def ended(hip: Hip, stream: int) -> int:
    """Return the graph, ready to launch."""
    graph = ctypes.c_void_p()
    hip("StreamEndCapture", stream, ctypes.byref(graph))
    return hip.new("GraphInstantiate", graph, 0, 0, 0)


def status(hip: Hip, stream: int) -> int:
    found = ctypes.c_int()
    hip("StreamIsCapturing", stream, ctypes.byref(found))
    return found.value


def end_error(hip: Hip, stream: int) -> str:
    return hip.error("StreamEndCapture", stream, ctypes.byref(ctypes.c_void_p()))


@on_device(SIMHIP_SCHEDULE="lazy")
def test_a_graph_runs_again_at_each_launch(hip: Hip) -> None:
    block, result = hip.malloc(64), hip.malloc(64)
    stream, side = begun(hip), hip.stream()
    hip.copy(stream, block, result)
    hip.order(stream, side)
    hip.copy(side, result, block)
    hip.order(side, stream)
    hip("MemsetAsync", result, 0, 64, stream)
    graph = ended(hip, stream)
    assert hip.library.simhip_pending() == 0
    for value in (1, 2):
        hip.fill(stream, block, value)
        hip("GraphLaunch", graph, stream)
        hip("StreamSynchronize", stream)
        assert (hip.read(block), hip.read(result)) == ([value] * 16, [0] * 16)


@on_device()
def test_memory_of_a_capture_is_the_program_s(hip: Hip) -> None:
    stream = begun(hip)
    block = hip.malloc(64)
    hip.fill(stream, block, 3)
    hip("GraphLaunch", ended(hip, stream), stream)
    hip("StreamSynchronize", stream)
    assert hip.read(block) == [3] * 16


@on_device()
def test_no_wait_for_the_device_in_any_capture(hip: Hip) -> None:
    stream = begun(hip)
    assert hip.error("DeviceSynchronize") == UNSUPPORTED
    assert status(hip, stream) == BROKEN
    assert end_error(hip, stream) == INVALIDATED
    hip("DeviceSynchronize")


UNSAFE = {
    "free": lambda hip, block, event, other: hip.error("Free", block),
    "malloc": lambda hip, block, event, other: hip.error("Malloc", ctypes.byref(ctypes.c_void_p()), 64),
    "event query": lambda hip, block, event, other: hip.error("EventQuery", event),
    "event wait": lambda hip, block, event, other: hip.error("EventSynchronize", event),
    "stream query": lambda hip, block, event, other: hip.error("StreamQuery", other),
    "stream wait": lambda hip, block, event, other: hip.error("StreamSynchronize", other),
    "copy": lambda hip, block, event, other: hip.error("Memcpy", block, block, 64, 3),
}


@pytest.mark.parametrize("call", UNSAFE)
def test_a_global_capture_forbids_what_may_wait(call: str) -> None:
    on_device(SIMHIP_CALL=call)(forbidden_where_captured)()


def forbidden_where_captured(hip: Hip) -> None:
    import os

    call = UNSAFE[os.environ["SIMHIP_CALL"]]
    block, other = hip.malloc(64), hip.stream()
    event = hip.event(other)
    for mode in (GLOBAL, THREAD_LOCAL):
        stream = begun(hip, mode)
        assert call(hip, block, event, other) == UNSUPPORTED
        assert end_error(hip, stream) == INVALIDATED


@on_device()
def test_a_thread_local_capture_forbids_its_thread(hip: Hip) -> None:
    stream, found = begun(hip, THREAD_LOCAL), []
    thread = threading.Thread(target=lambda: found.append(hip.malloc(64)))
    thread.start()
    thread.join()
    assert len(found) == 1
    assert status(hip, stream) == ACTIVE
    mode = ctypes.c_int(RELAXED)
    hip("ThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    assert mode.value == GLOBAL
    hip.malloc(64)  # the thread says that it knows
    ended(hip, stream)


@on_device()
def test_another_thread_does_not_end_a_capture(hip: Hip) -> None:
    stream, found = begun(hip, GLOBAL), []
    thread = threading.Thread(target=lambda: found.append(end_error(hip, stream)))
    thread.start()
    thread.join()
    assert found == ["hipErrorStreamCaptureWrongThread"]


@on_device()
def test_the_captured_stream_is_not_looked_at(hip: Hip) -> None:
    for call in ("StreamSynchronize", "StreamQuery"):
        stream = begun(hip)
        assert hip.error(call, stream) == UNSUPPORTED
        assert end_error(hip, stream) == INVALIDATED
    stream = begun(hip)
    assert hip.error("MallocAsync", ctypes.byref(ctypes.c_void_p()), 64, stream) == UNSUPPORTED
    assert hip.error("StreamBeginCapture", hip.legacy, RELAXED) == UNSUPPORTED
    assert hip.error("StreamBeginCapture", stream, RELAXED) == "hipErrorIllegalState"


@on_device()
def test_captured_events_are_not_looked_at(hip: Hip) -> None:
    for call in ("EventQuery", "EventSynchronize"):
        stream = begun(hip)
        event = hip.event(stream)
        assert hip.error(call, event) == "hipErrorCapturedEvent"
        assert end_error(hip, stream) == INVALIDATED
        hip(call, event)  # it is no event of a capture any more


@on_device()
def test_an_event_from_before_is_not_waited_for(hip: Hip) -> None:
    event = hip.event(hip.stream())
    stream = begun(hip)
    assert hip.error("StreamWaitEvent", stream, event, 0) == "hipErrorStreamCaptureIsolation"
    assert end_error(hip, stream) == INVALIDATED


@on_device()
def test_the_legacy_stream_breaks_a_blocking_capture(hip: Hip) -> None:
    block = hip.malloc(64)
    stream = begun(hip, non_blocking=False)
    asked = ctypes.c_int()
    assert hip.error("StreamIsCapturing", hip.legacy, ctypes.byref(asked)) == IMPLICIT
    assert status(hip, stream) == ACTIVE  # to ask breaks nothing
    assert hip.error("MemsetAsync", block, 0, 64, hip.legacy) == IMPLICIT
    assert end_error(hip, stream) == INVALIDATED
    stream = begun(hip)
    assert status(hip, hip.legacy) == NONE
    hip("MemsetAsync", block, 0, 64, hip.legacy)
    ended(hip, stream)


@on_device()
def test_a_fork_has_to_be_joined(hip: Hip) -> None:
    stream, side, block = begun(hip), hip.stream(), hip.malloc(64)
    hip.order(stream, side)
    assert status(hip, side) == ACTIVE
    hip.fill(side, block, 1)
    assert end_error(hip, side) == "hipErrorStreamCaptureUnmatched"
    assert end_error(hip, stream) == INVALIDATED
    stream = begun(hip)
    hip.order(stream, side)
    hip.fill(side, block, 1)
    assert end_error(hip, stream) == "hipErrorStreamCaptureUnjoined"
    assert status(hip, side) == NONE


@on_device()
def test_two_captures_do_not_meet(hip: Hip) -> None:
    one, two = begun(hip), begun(hip)
    assert hip.error("StreamWaitEvent", two, hip.event(one), 0) == "hipErrorStreamCaptureMerge"
    ended(hip, one)
    assert end_error(hip, two) == INVALIDATED


@on_device()
def test_a_destroyed_stream_takes_its_capture_along(hip: Hip) -> None:
    stream, side = begun(hip, GLOBAL), hip.stream()
    hip.order(stream, side)
    hip("StreamDestroy", stream)
    assert status(hip, side) == NONE
    hip.malloc(64)
