"""What a program must not do on a device: the simulated one names the stream, the operation and the allocation."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.device.hip_memory import UNIT, created, opened
from tests.device.hip_process import Hip, on_device

LOST = "hipErrorIllegalAddress"


@on_device(ends=True, says="fault: fill on stream 1 of device 0 has in argument 0 the address 0x")
def test_a_kernel_that_uses_freed_memory_stops(hip: Hip) -> None:
    stream, block = hip.stream(), hip.malloc(64)
    hip("Free", block)
    hip.fill(stream, block, 1)
    hip("StreamSynchronize", stream)


@on_device(SIMHIP_FAULTS="stick", SIMHIP_DEVICES="2")
def test_a_fault_can_stay(hip: Hip) -> None:
    stream, block, seen = hip.stream(), hip.malloc(64), []
    event = hip.event(stream)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append("host"))
    hip("MemsetAsync", block + 64, 0, 1, stream)
    hip("LaunchHostFunc", stream, function, 0)
    assert hip.error("StreamSynchronize", stream) == LOST
    assert not seen  # what was behind it is passed over
    out = ctypes.byref(ctypes.c_void_p())
    calls: list[tuple[Any, ...]] = [
        ("Malloc", out, 64),
        ("Free", block),
        ("MallocAsync", out, 64, stream),
        ("MemAddressReserve", out, UNIT, 0, 0, 0),
        ("MemGetInfo", out, ctypes.byref(ctypes.c_void_p())),
        ("MemsetAsync", block, 0, 1, stream),
        ("EventRecord", event, stream),
        ("EventQuery", event),
        ("StreamCreateWithFlags", out, 0),
        ("DeviceSynchronize",),
        ("GetLastError",),
        ("GetLastError",),
    ]
    for call in calls:
        assert hip.error(*call) == LOST, call
    hip("SetDevice", 1)
    hip.fill(0, hip.malloc(64), 1)
    hip("DeviceSynchronize")


@on_device(SIMHIP_FAULTS="count")
def test_a_call_that_may_wait_does_not_hold_the_gil(hip: Hip) -> None:
    holds = ctypes.PyDLL(hip.library._name)
    event, out = ctypes.c_void_p(hip.event(0)), ctypes.byref(ctypes.c_void_p())
    assert holds.hipEventQuery(event) in (0, 600)  # to ask is not to wait
    hip("DeviceSynchronize")
    assert hip.library.simhip_faults() == 0
    for count, call in enumerate(("Malloc", "DeviceSynchronize", "EventDestroy", "MemUnmap", "FreeAsync"), 1):
        getattr(holds, f"hip{call}")(*{"Malloc": (out, 8), "EventDestroy": (event,)}.get(call, (0, 0)))
        assert hip.library.simhip_faults() == count
        assert hip.last_fault() == f"fault: host code calls hip{call}, which may wait, and holds Python's GIL"


@on_device(SIMHIP_FAULTS="count")
def test_what_was_destroyed_is_not_named(hip: Hip) -> None:
    stream = hip.stream()
    event = hip.event(stream)
    hip("EventDestroy", event)
    hip("StreamDestroy", stream)
    calls: list[tuple[Any, ...]] = [
        ("EventQuery", event),
        ("EventDestroy", event),
        ("EventRecord", event, 0),
        ("StreamSynchronize", stream),
        ("StreamDestroy", stream),
        ("StreamIsCapturing", stream, ctypes.byref(ctypes.c_int())),
        ("MemsetAsync", hip.malloc(64), 0, 64, stream),
    ]
    for count, call in enumerate(calls, 1):
        hip.error(*call)
        assert hip.library.simhip_faults() == count
        what = "an event" if call[1] == event else "a stream"
        assert hip.last_fault() == f"fault: host code names {what} that was destroyed, or was never made"


@on_device(SIMHIP_FAULTS="count")
def test_copies_and_fills_are_held_to_their_whole_range(hip: Hip) -> None:
    block, result = hip.malloc(64), hip.malloc(128)
    hip("MemcpyAsync", result, block, 65, 3, 0)
    hip("MemsetAsync", block + 60, 0, 8, 0)
    hip("MemsetAsync", result + 128, 0, 1, 0)
    hip("DeviceSynchronize")
    assert hip.library.simhip_faults() == 3
    hip("MemsetAsync", block + 60, 0, 4, 0)
    hip("DeviceSynchronize")
    assert hip.library.simhip_faults() == 3


@on_device(SIMHIP_DEVICES="2", SIMHIP_FAULTS="count")
def test_another_device_s_memory_is_refused(hip: Hip) -> None:
    block = hip.malloc(64)
    hip("SetDevice", 1)
    hip.fill(0, block, 1)
    hip("DeviceSynchronize")
    assert hip.library.simhip_faults() == 1
    assert "on device 0), to which device 1 has no peer access" in hip.last_fault()


@on_device(SIMHIP_FAULTS="count", SIMHIP_SCHEDULE="adversarial")
def test_memory_is_refused_before_its_allocation(hip: Hip) -> None:
    stream, other = hip.stream(), hip.stream()
    block = hip.new("MallocAsync", 64, stream)
    hip.fill(other, block, 1)
    hip("StreamSynchronize", other)
    assert "not allocated yet in the order of streams" in hip.last_fault()
    hip.order(stream, other)
    hip.fill(other, block, 1)
    hip("StreamSynchronize", other)
    assert hip.library.simhip_faults() == 1


@on_device(SIMHIP_FAULTS="count")
def test_memory_is_refused_after_its_free_in_order(hip: Hip) -> None:
    stream = hip.stream()
    block = hip.new("MallocAsync", 64, stream)
    hip.fill(stream, block, 1)
    hip("FreeAsync", block, stream)
    hip.fill(stream, block, 2)
    hip("StreamSynchronize", stream)
    assert hip.library.simhip_faults() == 1
    assert hip.last_fault().endswith("by hipMallocAsync on device 0), freed")


@on_device(SIMHIP_FAULTS="count")
def test_a_graph_is_checked_at_each_launch(hip: Hip) -> None:
    stream, block = hip.stream(), hip.malloc(64)
    hip("StreamBeginCapture", stream, 2)
    hip.fill(stream, block, 1)
    graph = hip.new("GraphInstantiate", ended(hip, stream), 0, 0, 0)
    hip("GraphLaunch", graph, stream)
    hip("StreamSynchronize", stream)
    assert hip.library.simhip_faults() == 0
    hip("Free", block)
    hip("GraphLaunch", graph, stream)
    hip("StreamSynchronize", stream)
    assert hip.library.simhip_faults() == 1
    assert hip.last_fault().startswith("fault: fill in graph on stream 1 of device 0 ")


def ended(hip: Hip, stream: int) -> int:
    graph = ctypes.c_void_p()
    hip("StreamEndCapture", stream, ctypes.byref(graph))
    return graph.value or 0


@on_device(SIMHIP_FAULTS="count")
def test_unmapped_and_closed_ranges_are_refused(hip: Hip) -> None:
    base, handle = hip.new("MemAddressReserve", 2 * UNIT, 0, 0, 0), created(hip)
    hip("MemMap", base, UNIT, 0, handle, 0)
    hip.fill(0, base, 1)  # no access yet
    hip("DeviceSynchronize")
    assert hip.last_fault().endswith("to which hipMemSetAccess gave no access")
    opened(hip, base)
    hip.fill(0, base, 1)
    hip("MemsetAsync", base, 0, 2 * UNIT, 0)  # over the end
    hip("DeviceSynchronize")
    assert hip.library.simhip_faults() == 2
    hip("MemUnmap", base, UNIT)
    hip.fill(0, base, 1)
    hip("DeviceSynchronize")
    assert hip.library.simhip_faults() == 3
    assert hip.last_fault().endswith("unmapped")


@on_device(ends=True, says="fault: wild on the legacy default stream of device 0 touches 0x")
def test_a_kernel_that_leaves_its_block_is_named(hip: Hip) -> None:
    block = hip.malloc(4096)
    hip.launch("wild", 0, (block + 4096) ^ (1 << 63))
    hip("DeviceSynchronize")


@on_device(ends=True, says="), freed\n")
def test_a_kernel_that_touches_freed_memory_is_named(hip: Hip) -> None:
    block = hip.malloc(64)
    hip("Free", block)
    hip.launch("wild", 0, block ^ (1 << 63))
    hip("DeviceSynchronize")


@on_device(ends=True, SIMHIP_HOST_ACCESS="refuse", says="fault: host code touches 0x")
def test_host_code_that_touches_device_memory_stops(hip: Hip) -> None:
    block = hip.malloc(64)
    hip.fill(0, block, 1)
    hip("DeviceSynchronize")
    assert hip.read(block) == [1] * 16
    ctypes.string_at(block, 64)
