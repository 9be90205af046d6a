"""Virtual memory of the simulated device: what is reserved, created and mapped, and what a change of it waits for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tests.device.hip_memory import (
    MIB,
    PINNED,
    UNIT,
    VIRTUAL_MEMORY_ATTRIBUTE,
    Access,
    Location,
    created,
    opened,
)
from tests.device.hip_process import Hip, on_device


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
