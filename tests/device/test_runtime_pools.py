"""The stream-ordered allocator of the simulated device, and its memory pools."""

from __future__ import annotations

import ctypes

from tests.device.hip_memory import (
    MIB,
    RESERVED,
    RESERVED_HIGH,
    THRESHOLD,
    USED,
    USED_HIGH,
    Access,
    Location,
    PoolProperties,
    attribute,
)
from tests.device.hip_process import Hip, on_device


@on_device()
def test_a_pool_gives_back_when_the_program_waits(hip: Hip) -> None:
    stream = hip.stream()
    block = hip.new("MallocAsync", 1000, stream)
    assert (attribute(hip, RESERVED), attribute(hip, USED), hip.library.simhip_used(0)) == (1024,) * 3
    hip("FreeAsync", block, stream)
    assert (attribute(hip, RESERVED), attribute(hip, USED)) == (1024, 0)
    hip("StreamSynchronize", stream)
    assert (attribute(hip, RESERVED), hip.library.simhip_used(0)) == (0, 0)
    assert (attribute(hip, RESERVED_HIGH), attribute(hip, USED_HIGH)) == (1024, 1024)


@on_device()
def test_a_pool_keeps_what_its_threshold_says(hip: Hip) -> None:
    stream, pool = hip.stream(), hip.new("DeviceGetDefaultMemPool", 0)
    hip("MemPoolSetAttribute", pool, THRESHOLD, ctypes.byref(ctypes.c_uint64(1024)))
    blocks = [hip.new("MallocAsync", 1024, stream) for _ in range(3)]
    for block in blocks:
        hip("FreeAsync", block, stream)
    hip("DeviceSynchronize")
    assert hip.library.simhip_used(0) == 1024
    hip("MemPoolTrimTo", pool, 512)
    assert hip.library.simhip_used(0) == 512
    assert (
        hip.error("MemPoolSetAttribute", pool, USED, ctypes.byref(ctypes.c_uint64()))
        == "hipErrorInvalidValue"
    )


@on_device()
def test_a_stream_uses_what_it_has_freed_again(hip: Hip) -> None:
    stream, other = hip.stream(), hip.stream()
    hip("FreeAsync", hip.new("MallocAsync", 1024, stream), stream)
    hip.new("MallocAsync", 1024, stream)
    assert attribute(hip, RESERVED) == 1024
    hip("FreeAsync", hip.new("MallocAsync", 1024, stream), stream)
    hip.new("MallocAsync", 1024, other)  # the free has not run yet
    assert attribute(hip, RESERVED) == 3072


@on_device(SIMHIP_MEMORY="1MiB")
def test_a_pool_waits_for_frees_before_it_gives_up(hip: Hip) -> None:
    stream, other = hip.stream(), hip.stream()
    hip("FreeAsync", hip.new("MallocAsync", MIB, stream), stream)
    block = hip.new("MallocAsync", MIB, other)
    assert hip.error("MallocAsync", ctypes.byref(ctypes.c_void_p()), 512, other) == "hipErrorOutOfMemory"
    hip("FreeAsync", block, other)
    hip.malloc(MIB)


@on_device()
def test_stream_ordered_memory_can_be_freed_at_once(hip: Hip) -> None:
    block = hip.new("MallocAsync", 512, 0)
    hip("Free", block)
    assert attribute(hip, USED) == 0
    assert hip.error("FreeAsync", block, 0) == "hipErrorInvalidValue"
    block = hip.new("MallocAsync", 512, 0)
    hip("FreeAsync", block, 0)
    assert hip.error("FreeAsync", block, 0) == "hipErrorInvalidValue"


@on_device(SIMHIP_FAULTS="count")
def test_a_free_does_not_wait_for_stream_ordered_memory(hip: Hip) -> None:
    block = hip.new("MallocAsync", 64, 0)
    hip.fill(0, block, 1)
    hip("Free", block)
    assert hip.library.simhip_pending() == 2
    hip("DeviceSynchronize")
    assert hip.library.simhip_faults() == 1
    assert hip.last_fault().endswith("by hipMallocAsync on device 0), freed")


@on_device(SIMHIP_DEVICES="2", SIMHIP_FAULTS="count")
def test_a_peer_uses_a_pool_s_memory_where_the_pool_says_so(hip: Hip) -> None:
    pool, block = hip.new("DeviceGetMemPool", 0), hip.new("MallocAsync", 64, 0)
    hip("DeviceSynchronize")
    for faults, flags in enumerate((0, 3, 0)):
        hip("SetDevice", 0)
        hip("MemPoolSetAccess", pool, ctypes.byref(Access(Location(1, 1), flags)), 1)
        blocks = [block, hip.new("MallocAsync", 64, 0)]
        hip("DeviceSynchronize")
        hip("SetDevice", 1)
        if faults == 0:
            hip("DeviceEnablePeerAccess", 0, 0)  # that says nothing of pools
        for each in blocks:
            hip.fill(0, each, 1)
        hip("DeviceSynchronize")
        assert hip.library.simhip_faults() == (2, 2, 4)[faults]
    assert "to whose pool hipMemPoolSetAccess gave device 1 no access" in hip.last_fault()
    assert hip.error("MemPoolSetAccess", pool, ctypes.byref(Access(Location(1, 0), 0)), 1) == (
        "hipErrorInvalidValue"
    )


@on_device()
def test_a_program_has_pools_of_its_own(hip: Hip) -> None:
    own = hip.new("MemPoolCreate", ctypes.byref(PoolProperties(1, 0, Location(1, 0))))
    default = hip.new("DeviceGetDefaultMemPool", 0)
    block = hip.new("MallocFromPoolAsync", 512, own, 0)
    assert (attribute(hip, USED), attribute(hip, USED, own)) == (0, 512)
    hip("DeviceSetMemPool", 0, own)
    assert hip.new("DeviceGetMemPool", 0) == own
    other = hip.new("MallocAsync", 512, 0)
    assert attribute(hip, USED, own) == 1024
    hip("MemPoolDestroy", own)
    assert hip.new("DeviceGetMemPool", 0) == default
    assert hip.error("MemPoolTrimTo", own, 0) == "hipErrorInvalidValue"
    hip("FreeAsync", block, 0)
    hip("DeviceSynchronize")
    assert hip.library.simhip_used(0) == 512  # until its last block is free
    hip("FreeAsync", other, 0)
    hip("DeviceSynchronize")
    assert hip.library.simhip_used(0) == 0
    assert hip.error("MemPoolDestroy", default) == "hipErrorInvalidValue"


@on_device(SIMHIP_MEMORY_POOLS="0")
def test_a_device_can_lack_memory_pools(hip: Hip) -> None:
    assert hip.error("MallocAsync", ctypes.byref(ctypes.c_void_p()), 512, 0) == "hipErrorNotSupported"
