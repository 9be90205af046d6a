"""Memory of the simulated device, as its tests ask for it: the structures of HIP, attributes of pools, and bytes."""

from __future__ import annotations

import ctypes

from tests.device.hip_process import Hip

MIB = 1 << 20
UNIT = 4096
"""Bytes: the granularity of virtual memory."""
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8
"""A memory pool's attributes."""
VIRTUAL_MEMORY_ATTRIBUTE = 89


def bytes_of(hip: Hip, source: int, size: int = 64) -> bytes:
    data = ctypes.create_string_buffer(size)
    hip("Memcpy", data, source, size, 4)
    return data.raw


def attribute(hip: Hip, what: int, pool: int = 0) -> int:
    value = ctypes.c_uint64()
    hip("MemPoolGetAttribute", pool or hip.new("DeviceGetDefaultMemPool", 0), what, ctypes.byref(value))
    return value.value


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
