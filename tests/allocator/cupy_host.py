"""Real CuPy objects over host memory: what CupyPool needs of a device, without one.

What it still shows beside the simulated device (tests/device): that the pool serves CuPy's wheel for CUDA, that it runs
where there is no driver, and what it does when an upstream fails just as a test wants it; and all that in `make test`.

CuPy constructs `UnownedMemory`, `MemoryPointer` and `ndarray` without a driver as long as the device number is given.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed; expected: pip install 'stowplan[cupy]'")

ALIGNMENT = 512
GUARD = 0xEE  # what stands in upstream's memory until somebody writes to it


class Buffer:
    """Host memory that upstream counts as long as it lives; its last bytes guard against writes beyond the end."""

    def __init__(self, upstream: HostUpstream, size: int) -> None:
        self.memory = np.full(size + 2 * ALIGNMENT, GUARD, dtype=np.uint8)
        self.size = size
        self.begin = -self.memory.ctypes.data % ALIGNMENT
        self.address = self.memory.ctypes.data + self.begin
        self.upstream = upstream
        upstream.live_bytes += size

    def __del__(self) -> None:
        # Without NumPy's functions: some are gone when the interpreter goes down.
        behind = self.memory[self.begin + self.size :].tobytes()
        self.upstream.live_bytes -= self.size
        self.upstream.overwritten |= behind.strip(bytes([GUARD])) != b""


class HostUpstream:
    """A CuPy allocator, ``f(size) -> MemoryPointer``, that can be made to fail.

    Attributes
    ----------
    sizes
        Sizes of all requests, the failed ones too.
    live_bytes
        Bytes given out and not yet given back.
    overwritten
        Whether anybody wrote behind the end of a block that is gone.
    fails
        ``f(number, size) -> bool``: which requests fail, counted from 0.
    errors
        Where a list, the errors raised are kept there; they keep the frames of their callers alive, arrays and all.
    """

    def __init__(self, fails: Callable[[int, int], bool] = lambda number, size: False) -> None:
        self.sizes: list[int] = []
        self.live_bytes = 0
        self.overwritten = False
        self.fails = fails
        self.errors: list[Exception] | None = None

    def __call__(self, size: int) -> Any:
        self.sizes.append(size)
        if self.fails(len(self.sizes) - 1, size):
            error = cupy.cuda.memory.OutOfMemoryError(size, self.live_bytes)
            if self.errors is not None:
                self.errors.append(error)
            try:
                raise error
            finally:
                del error  # with its traceback it would keep this frame alive, and its callers'
        buffer = Buffer(self, size)
        memory = cupy.cuda.UnownedMemory(buffer.address, size, buffer, 0)
        return cupy.cuda.MemoryPointer(memory, 0)


def address(array: Any) -> int:
    """Where an array's bytes are."""
    return int(array.data.ptr)


def fill(array: Any, byte: int) -> Any:
    """Write the same value to all bytes of a contiguous array, and return the array."""
    ctypes.memset(address(array), byte, array.nbytes)
    return array


def holds(array: Any, byte: int) -> bool:
    """Whether all bytes of a contiguous array are as `fill` left them."""
    return ctypes.string_at(address(array), array.nbytes) == bytes([byte]) * array.nbytes


SIZES = (3000, 700, 1500, 900)


def empty(size: int, byte: int = 1) -> Any:
    return fill(cupy.empty(size, cupy.uint8), byte)


def chain(sizes: tuple[int, ...] = SIZES) -> None:
    """A step with two blocks alive at a time, each read before it goes."""
    previous = empty(64, 99)
    for byte, size in enumerate(sizes):
        current = empty(size, byte)
        assert holds(previous, byte - 1 if byte else 99)
        previous = current
