"""Memory of the simulated device: its limit and counts, managed and pinned memory, peers, pools and virtual memory."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.device import hip_process
from tests.device.hip_process import Hip, on_device

MIB = 1 << 20
UNIT = 4096
"""Bytes: the granularity of virtual memory."""
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8
"""A memory pool's attributes."""
VIRTUAL_MEMORY_ATTRIBUTE = 89
NAN = b"\xff" * 64


def bytes_of(hip: Hip, source: int, size: int = 64) -> bytes:
    data = ctypes.create_string_buffer(size)
    hip("Memcpy", data, source, size, 4)
    return data.raw


@on_device(SIMHIP_MEMORY="1MiB")
def test_memory_ends_at_the_limit(hip: Hip) -> None:
    first = hip.malloc(MIB - 512)
    assert hip.error("Malloc", ctypes.byref(ctypes.c_void_p()), 513) == "hipErrorOutOfMemory"
    hip.malloc(512)
    assert hip.free_bytes() == 0
    hip("Free", first)
    assert hip.free_bytes() == MIB - 512


@on_device(SIMHIP_MEMORY="16GiB")
def test_memory_is_counted_to_the_unit(hip: Hip) -> None:
    assert hip.free_bytes() == 16 << 30
    blocks = [hip.malloc(size) for size in (1, 512, 513)]
    assert hip.free_bytes() == (16 << 30) - 512 * 4
    assert hip.library.simhip_used(0) == 512 * 4
    hip("Free", blocks[2])
    assert (hip.library.simhip_used(0), hip.library.simhip_peak_used(0)) == (1024, 2048)
    hip.library.simhip_reset_peak(0)
    assert hip.library.simhip_peak_used(0) == 1024


@on_device(SIMHIP_PAGE="", SIMHIP_GRANULARITY="", SIMHIP_CONTEXT="", SIMHIP_MEMORY="64MiB")
def test_a_device_counts_as_one_of_cuda_s_where_nothing_is_chosen(hip: Hip) -> None:
    assert hip.number("MemGetAllocationGranularity", ctypes.byref(PINNED), 0, of=ctypes.c_size_t) == 2 * MIB
    hip.malloc(1)
    assert hip.free_bytes() == 60 * MIB  # a context, and a block's page


@on_device(SIMHIP_GRANULARITY="2MiB")
def test_small_blocks_share_granules_and_large_ones_do_not(hip: Hip) -> None:
    small = [hip.malloc(size) for size in (1, MIB, MIB - 512)]
    assert hip.library.simhip_used(0) == 2 * MIB
    hip.malloc(1)  # the granule is full
    assert hip.library.simhip_used(0) == 4 * MIB
    large = hip.malloc(2 * MIB + 1)
    assert hip.library.simhip_used(0) == 8 * MIB
    hip("Free", large)
    hip("Free", small[1])
    hip.malloc(MIB)  # where there is room again
    assert hip.library.simhip_used(0) == 4 * MIB
    hip("Free", small[0])
    hip("Free", small[2])
    assert hip.library.simhip_used(0) == 4 * MIB  # one block keeps a granule


@on_device(SIMHIP_GRANULARITY="2MiB")
def test_a_pool_takes_whole_granules(hip: Hip) -> None:
    blocks = [hip.new("MallocAsync", 512, 0) for _ in range(2)]
    assert (attribute(hip, RESERVED), attribute(hip, USED), hip.library.simhip_used(0)) == (
        2 * MIB,
        1024,
        2 * MIB,
    )
    hip("FreeAsync", blocks[0], 0)
    hip("DeviceSynchronize")
    assert attribute(hip, RESERVED) == 2 * MIB
    hip("FreeAsync", blocks[1], 0)
    hip("DeviceSynchronize")
    assert (attribute(hip, RESERVED), hip.library.simhip_used(0)) == (0, 0)


@on_device(SIMHIP_MEMORY="64GiB")
def test_memory_that_is_not_written_takes_none_of_the_host(hip: Hip) -> None:
    block = hip.malloc(60 << 30)
    assert bytes_of(hip, block + (59 << 30)) == NAN


@on_device()
def test_new_memory_is_full_of_nans(hip: Hip) -> None:
    block = hip.malloc(64)
    assert bytes_of(hip, block) == NAN
    hip("Memset", block, 0, 64)
    hip("Free", block)
    assert bytes_of(hip, hip.malloc(64)) == NAN


@on_device(SIMHIP_POISON="0")
def test_new_memory_is_zero_where_that_is_chosen(hip: Hip) -> None:
    assert bytes_of(hip, hip.malloc(64)) == bytes(64)


@on_device()
def test_an_address_is_not_given_out_again_at_once(hip: Hip) -> None:
    seen = set()
    for _ in range(100):
        block = hip.malloc(10_000)
        hip("Free", block)
        seen.add(block)
    assert len(seen) == 100


@on_device(SIMHIP_MEMORY="1MiB", SIMHIP_ADDRESS_SPACE="4MiB")
def test_addresses_come_again_when_all_were_used(hip: Hip) -> None:
    for _ in range(100):
        hip("Free", hip.malloc(MIB))
    assert hip.free_bytes() == MIB


@on_device(SIMHIP_MEMORY="1MiB")
def test_managed_memory_has_counts_of_its_own(hip: Hip) -> None:
    block = hip.new("MallocManaged", 3 * MIB, 1)
    assert (hip.library.simhip_managed_used(0), hip.free_bytes()) == (3 * MIB, MIB)
    hip("MemAdvise", block, MIB, 1, 0)
    hip("MemPrefetchAsync", block, MIB, 0, 0)
    hip("Free", block)
    assert hip.library.simhip_managed_used(0) == 0
    assert hip.error("MemAdvise", hip.malloc(8), 8, 1, 0) == "hipErrorInvalidValue"


@on_device()
def test_pinned_memory_is_the_hosts(hip: Hip) -> None:
    block = hip.new("HostMalloc", 64, 0)
    hip.fill(0, block, 3)
    hip("DeviceSynchronize")
    assert struct.unpack("16f", ctypes.string_at(block, 64)) == (3,) * 16
    assert hip.error("Free", block) == "hipErrorInvalidValue"
    assert (hip.library.simhip_pinned_used(), hip.library.simhip_used(0)) == (512, 0)
    hip("HostFree", block)
    assert hip.library.simhip_pinned_used() == 0


@on_device()
def test_a_free_waits_for_the_device(hip: Hip) -> None:
    stream = hip.stream()
    block, result = hip.malloc(64), hip.malloc(64)
    hip.fill(stream, block, 5)
    hip.copy(stream, block, result)
    assert hip.library.simhip_pending() == 2
    hip("Free", block)
    assert hip.library.simhip_pending() == 0
    assert hip.read(result) == [5] * 16


@on_device()
def test_what_is_freed_twice_is_refused(hip: Hip) -> None:
    block = hip.malloc(64)
    hip("Free", block)
    assert hip.error("Free", block) == "hipErrorInvalidValue"
    assert hip.error("Free", hip.malloc(64) + 8) == "hipErrorInvalidValue"


@on_device()
def test_a_direction_that_is_not_so_is_refused(hip: Hip) -> None:
    block, data = hip.malloc(64), ctypes.create_string_buffer(64)
    assert hip.error("Memcpy", data, block, 64, 1) == "hipErrorInvalidValue"
    assert hip.error("Memcpy", block, data, 64, 3) == "hipErrorInvalidValue"
    hip("Memcpy", block, data, 64, 4)


# ---------------------------------------------------------------------------------------------------------- devices


@on_device(SIMHIP_DEVICES="2", SIMHIP_MEMORY="1MiB")
def test_each_device_has_its_memory(hip: Hip) -> None:
    hip.malloc(MIB)
    hip("SetDevice", 1)
    assert hip.free_bytes() == MIB
    hip.malloc(512)
    assert (hip.library.simhip_used(0), hip.library.simhip_used(1)) == (MIB, 512)
    assert hip.error("SetDevice", 2) == "hipErrorInvalidDevice"


@on_device(SIMHIP_DEVICES="3")
def test_devices_copy_to_each_other(hip: Hip) -> None:
    blocks, streams = [], []
    for device in range(3):
        hip("SetDevice", device)
        blocks.append(hip.malloc(64))
        streams.append(hip.stream())
    hip.fill(streams[2], blocks[2], 9)
    hip("MemcpyPeerAsync", blocks[1], 1, blocks[2], 2, 64, streams[2])
    hip("StreamSynchronize", streams[2])  # the next call waits for the two devices that it names
    hip("MemcpyPeer", blocks[0], 0, blocks[1], 1, 64)
    assert hip.read(blocks[0]) == [9] * 16
    assert hip.error("MemcpyPeer", blocks[0], 1, blocks[1], 1, 64) == "hipErrorInvalidValue"


@on_device(SIMHIP_DEVICES="2", SIMHIP_SCHEDULE="adversarial")
def test_a_copy_between_devices_waits_for_both(hip: Hip) -> None:
    here, there = hip.malloc(64), 0
    for value in (1, 2):
        hip("SetDevice", 1)
        there, stream = there or hip.malloc(64), hip.stream()
        hip.fill(stream, there, value)
        hip("SetDevice", 0)
        hip("MemcpyAsync", here, there, 64, 3, hip.legacy)
    hip("SetDevice", 1)
    hip.fill(hip.legacy, there, 3)  # not before the copies
    hip("SetDevice", 0)
    assert hip.read(here) == [2] * 16
    assert hip.read(there) == [2] * 16


@on_device(SIMHIP_DEVICES="2")
def test_a_kernel_uses_a_peer_s_memory(hip: Hip) -> None:
    block = hip.malloc(64)
    hip("SetDevice", 1)
    assert hip.number("DeviceCanAccessPeer", 1, 0) == 1
    hip("DeviceEnablePeerAccess", 0, 0)
    assert hip.error("DeviceEnablePeerAccess", 0, 0) == "hipErrorPeerAccessAlreadyEnabled"
    hip.fill(0, block, 4)
    hip("DeviceSynchronize")
    assert hip.read(block) == [4] * 16
    hip("DeviceDisablePeerAccess", 0)
    assert hip.error("DeviceDisablePeerAccess", 0) == "hipErrorPeerAccessNotEnabled"


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


@on_device()
def test_another_process_uses_what_hipmalloc_gave(hip: Hip) -> None:
    block, handle = hip.malloc(64), IpcHandle()
    hip.fill(0, block, 1)
    hip("IpcGetMemHandle", ctypes.byref(handle), block)
    hip.fill(0, block, 2)
    hip("DeviceSynchronize")
    assert (
        hip.error("IpcOpenMemHandle", ctypes.byref(ctypes.c_void_p()), handle, 1) == "hipErrorInvalidContext"
    )
    environment = {**os.environ, "HANDLE": bytes(handle.bytes).hex()}
    command = [sys.executable, hip_process.__file__, __file__, uses_another_s.__name__, hip._kernels]
    subprocess.run(command, env=environment, check=True)
    assert hip.read(block) == [3] * 16
    hip("Free", block)


def uses_another_s(hip: Hip) -> None:
    handle = IpcHandle.from_buffer_copy(bytes.fromhex(os.environ["HANDLE"]))
    block = hip.new("IpcOpenMemHandle", handle, 1)
    assert hip.read(block) == [2] * 16
    hip.fill(0, block, 3)
    hip("DeviceSynchronize")
    assert hip.error("Free", block) == "hipErrorInvalidValue"
    hip("IpcCloseMemHandle", block)
    assert hip.library.simhip_used(0) == 0


@on_device()
def test_another_process_gets_neither_virtual_nor_stream_ordered_memory(hip: Hip) -> None:
    base = hip.new("MemAddressReserve", UNIT, 0, 0, 0)
    hip("MemMap", base, UNIT, 0, created(hip), 0)
    opened(hip, base)
    for block in (base, hip.new("MallocAsync", 64, 0), hip.new("MallocManaged", 64, 1)):
        assert hip.error("IpcGetMemHandle", ctypes.byref(IpcHandle()), block) == "hipErrorInvalidValue"


# ------------------------------------------------------------------------------------ the stream-ordered allocator


def attribute(hip: Hip, what: int, pool: int = 0) -> int:
    value = ctypes.c_uint64()
    hip("MemPoolGetAttribute", pool or hip.new("DeviceGetDefaultMemPool", 0), what, ctypes.byref(value))
    return value.value


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


@on_device(SIMHIP_DEVICES="2", SIMHIP_PEERS_OF_POOLS="1")
def test_peer_access_can_open_pools(hip: Hip) -> None:
    block = hip.new("MallocAsync", 64, 0)
    hip("DeviceSynchronize")
    hip("SetDevice", 1)
    hip("DeviceEnablePeerAccess", 0, 0)
    hip.fill(0, block, 1)
    hip("DeviceSynchronize")
    assert hip.read(block) == [1] * 16


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


# ---------------------------------------------------------------------------------------------------- virtual memory


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 4),
    ]


class PoolProperties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("rest", ctypes.c_ubyte * 72),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


PINNED = Properties(1, 0, Location(1, 0), None, (0, 0, 0, 0))


def created(hip: Hip, size: int = UNIT) -> int:
    return hip.new("MemCreate", size, ctypes.byref(PINNED), 0)


def opened(hip: Hip, base: int, size: int = UNIT, flags: int = 3) -> None:
    hip("MemSetAccess", base, size, ctypes.byref(Access(Location(1, 0), flags)), 1)


@on_device(SIMHIP_MEMORY="8MiB")
def test_virtual_memory_counts_from_create_to_release(hip: Hip) -> None:
    assert hip.number("MemGetAllocationGranularity", ctypes.byref(PINNED), 0, of=ctypes.c_size_t) == UNIT
    base = hip.new("MemAddressReserve", 16 * MIB, 0, 0, 0)
    assert hip.library.simhip_used(0) == 0
    handle = created(hip)
    assert hip.library.simhip_used(0) == UNIT
    hip("MemMap", base, UNIT, 0, handle, 0)
    hip("MemRelease", handle)
    assert hip.library.simhip_used(0) == UNIT
    hip("MemUnmap", base, UNIT)
    assert hip.library.simhip_used(0) == 0
    hip("MemAddressFree", base, 16 * MIB)
    assert hip.error("MemCreate", ctypes.byref(ctypes.c_void_p()), 10 * MIB, ctypes.byref(PINNED), 0) == (
        "hipErrorOutOfMemory"
    )


@on_device()
def test_mapped_memory_keeps_its_bytes(hip: Hip) -> None:
    base = hip.new("MemAddressReserve", 4 * UNIT, 0, 0, 0)
    first, second = created(hip), created(hip, 2 * UNIT)
    hip("MemMap", base, UNIT, 0, first, 0)
    hip("MemMap", base + UNIT, 2 * UNIT, 0, second, 0)
    opened(hip, base, 3 * UNIT)
    hip.fill(0, base + UNIT - 32, 6)  # from one mapping into the next
    hip("DeviceSynchronize")
    hip("MemUnmap", base, UNIT)
    hip("MemMap", base + 3 * UNIT, UNIT, 0, first, 0)
    opened(hip, base + 3 * UNIT)
    assert hip.read(base + 4 * UNIT - 32, 8) == hip.read(base + UNIT, 8) == [6] * 8


@on_device()
def test_misuse_of_virtual_memory_is_refused(hip: Hip) -> None:
    base, handle = hip.new("MemAddressReserve", 4 * UNIT, 0, 0, 0), created(hip, 2 * UNIT)
    hip("MemMap", base, 2 * UNIT, 0, handle, 0)
    refused: list[tuple[Any, ...]] = [
        ("MemMap", base + UNIT, UNIT, 0, created(hip), 0),  # over a mapping
        ("MemMap", base + 2 * UNIT + 512, UNIT, 0, created(hip), 0),
        ("MemMap", base + 4 * UNIT, UNIT, 0, created(hip), 0),  # not reserved
        ("MemMap", base + 2 * UNIT, 2 * UNIT, 0, created(hip), 0),  # more than there is
        ("MemMap", base + 2 * UNIT, UNIT, UNIT, handle, 0),
        ("MemUnmap", base, UNIT),  # a part
        ("MemUnmap", base + 2 * UNIT, UNIT),
        ("MemAddressFree", base, 4 * UNIT),  # with a mapping in it
        ("MemAddressFree", base, UNIT),
        ("MemCreate", ctypes.byref(ctypes.c_void_p()), UNIT // 2, ctypes.byref(PINNED), 0),
        ("MemAddressReserve", ctypes.byref(ctypes.c_void_p()), UNIT // 2, 0, 0, 0),
        ("MemSetAccess", base, 4 * UNIT, ctypes.byref(Access(Location(1, 0), 3)), 1),
        ("MemSetAccess", base, UNIT, ctypes.byref(Access(Location(1, 7), 3)), 1),
        ("MemRelease", base),
        ("Free", base),
    ]
    for call in refused:
        assert hip.error(*call) == "hipErrorInvalidValue", call


@on_device(SIMHIP_VIRTUAL_MEMORY="0")
def test_a_device_can_lack_virtual_memory(hip: Hip) -> None:
    assert (
        hip.error("MemAddressReserve", ctypes.byref(ctypes.c_void_p()), UNIT, 0, 0, 0)
        == "hipErrorNotSupported"
    )
    assert hip.error("MemCreate", ctypes.byref(ctypes.c_void_p()), UNIT, ctypes.byref(PINNED), 0) == (
        "hipErrorNotSupported"
    )
    assert hip.error(
        "MemGetAllocationGranularity", ctypes.byref(ctypes.c_size_t()), ctypes.byref(PINNED), 0
    ) == ("hipErrorNotSupported")
    assert hip.number("DeviceGetAttribute", VIRTUAL_MEMORY_ATTRIBUTE, 0) == 0


@on_device(SIMHIP_VIRTUAL_MEMORY="2")
def test_a_device_can_refuse_to_map(hip: Hip) -> None:
    assert hip.number("DeviceGetAttribute", VIRTUAL_MEMORY_ATTRIBUTE, 0) == 1
    base, handle = hip.new("MemAddressReserve", UNIT, 0, 0, 0), created(hip)
    assert hip.error("MemMap", base, UNIT, 0, handle, 0) == "hipErrorInvalidDevice"
    hip("MemRelease", handle)
    hip("MemAddressFree", base, UNIT)
    assert hip.library.simhip_used(0) == 0


def pending_when_mappings_change(hip: Hip) -> list[int]:
    """Return how much work waits after each change of what is mapped, with work given before each."""
    base, block, found = hip.new("MemAddressReserve", UNIT, 0, 0, 0), hip.malloc(64), []
    calls: list[Callable[[], None]] = [
        lambda: hip("MemMap", base, UNIT, 0, created(hip), 0),
        lambda: opened(hip, base),
        lambda: hip("MemUnmap", base, UNIT),
    ]
    for call in calls:
        hip.fill(0, block, 1)
        call()
        found.append(hip.library.simhip_pending())
    return found


@on_device(SIMHIP_MAPPING_WAITS="1")
def test_a_change_of_mappings_can_wait_for_the_device(hip: Hip) -> None:
    assert pending_when_mappings_change(hip) == [1, 0, 0]


@on_device()
def test_a_change_of_mappings_waits_for_nothing(hip: Hip) -> None:
    assert pending_when_mappings_change(hip) == [1, 2, 3]
