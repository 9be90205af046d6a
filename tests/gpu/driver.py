"""How a device counts its memory, as its driver says."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any


def in_use(cupy: Any) -> int:
    """Return the bytes of the device that are not free."""
    free, total = cupy.cuda.runtime.memGetInfo()
    return int(total - free)


@functools.cache
def granule() -> int:
    """Return the bytes of which a block of its own takes a multiple: 2 MiB of an H100, as CUDA's driver counts."""
    from cupy.cuda import runtime

    before, size = runtime.memGetInfo()[0], 3 << 19
    block = runtime.malloc(size)
    taken = before - runtime.memGetInfo()[0]
    runtime.free(block)
    return 512 if taken == size else 2 << 20


@functools.cache
def page() -> int:
    """Return the bytes in which the device maps memory."""
    from cupy.cuda import runtime

    library, prefix = ("libamdhip64.so.7", "hip") if runtime.is_hip else ("libcuda.so.1", "cu")
    size = ctypes.c_size_t()
    properties = struct.pack("=6i8x8x", 1, 0, 1, 0, 0, 0)  # pinned, of device 0
    ask = getattr(ctypes.CDLL(library), f"{prefix}MemGetAllocationGranularity")
    assert ask(ctypes.byref(size), properties, 0) == 0
    return size.value
