"""Memory of the simulated device: its limit and counts, managed and pinned memory, and peers."""

from __future__ import annotations

import ctypes
import struct

from tests.device.hip_memory import MIB, PINNED, RESERVED, USED, attribute, bytes_of
from tests.device.hip_process import Hip, on_device

NAN = b"\xff" * 64


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
    hip("Free", block)
    assert hip.library.simhip_managed_used(0) == 0


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
