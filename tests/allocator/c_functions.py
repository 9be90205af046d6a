"""The five C functions of a pool or a place (profiler/core/host_memory.hpp, `Upstream`), called by ctypes."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, c_size_t, c_void_p

UNKNOWN = ctypes.c_size_t(-1).value
"""The size that a free is told if nobody knows it."""


class _Upstream(ctypes.Structure):
    _fields_ = (
        ("ctx", c_void_p),
        ("malloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t)),
        ("calloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)),
        ("realloc", CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_size_t)),
        ("free", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
    )


class CFunctions:
    """Them, at an address. A call lets go of the GIL."""

    def __init__(self, address: int) -> None:
        self._at = _Upstream.from_address(address)

    def malloc(self, size: int) -> int:
        """Return an address, or 0."""
        return self._at.malloc(self._at.ctx, size) or 0

    def calloc(self, count: int, size: int) -> int:
        return self._at.calloc(self._at.ctx, count, size) or 0

    def realloc(self, block: int, size: int) -> int:
        return self._at.realloc(self._at.ctx, block, size) or 0

    def free(self, block: int, size: int = UNKNOWN) -> None:
        self._at.free(self._at.ctx, block, size)
