"""The five C functions of a pool or a place (common/core/host_memory.hpp, `Upstream`), called by ctypes."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, c_size_t, c_void_p

UNKNOWN = ctypes.c_size_t(-1).value
"""The size that a free is told if nobody knows it."""


_MALLOC = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
_CALLOC = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
_REALLOC = CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_size_t)
_FREE = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)


class _Upstream(ctypes.Structure):
    _fields_ = (
        ("ctx", c_void_p),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", _FREE),
    )


class LibcUpstream:
    """The C library as five functions, which count what is alive, and fail when they are told to.

    Attributes
    ----------
    address
        The functions' addresses.
    live
        Sizes of the blocks alive, by address.
    failures
        So many of the next requests fail.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        for name in ("malloc", "calloc", "realloc"):
            getattr(self._libc, name).restype = c_void_p
        self.live: dict[int, int] = {}
        self.failures = 0
        self._functions = _Upstream(
            None, _MALLOC(self._malloc), _CALLOC(self._calloc), _REALLOC(self._realloc), _FREE(self._free)
        )
        self.address = ctypes.addressof(self._functions)

    def _note(self, found: int | None, size: int) -> int | None:
        if found:
            self.live[found] = size
        return found

    def _fails(self) -> bool:
        self.failures = max(self.failures - 1, -1)
        return self.failures >= 0

    def _malloc(self, ctx: int | None, size: int) -> int | None:
        return None if self._fails() else self._note(self._libc.malloc(c_size_t(size)), size)

    def _calloc(self, ctx: int | None, count: int, size: int) -> int | None:
        if self._fails():
            return None
        return self._note(self._libc.calloc(c_size_t(count), c_size_t(size)), count * size)

    def _realloc(self, ctx: int | None, block: int, size: int) -> int | None:
        del self.live[block]
        return self._note(self._libc.realloc(c_void_p(block), c_size_t(size)), size)

    def _free(self, ctx: int | None, block: int, size: int) -> None:
        del self.live[block]
        self._libc.free(c_void_p(block))


class CFunctions:
    """Them, copied from an address, so they may outlive what stood there. A call lets go of the GIL."""

    def __init__(self, address: int, upstream: LibcUpstream | None = None) -> None:
        self._at = _Upstream.from_buffer_copy(_Upstream.from_address(address))
        self.upstream = upstream  # what they call, kept alive

    def malloc(self, size: int) -> int:
        """Return an address, or 0."""
        return self._at.malloc(self._at.ctx, size) or 0

    def calloc(self, count: int, size: int) -> int:
        return self._at.calloc(self._at.ctx, count, size) or 0

    def realloc(self, block: int, size: int) -> int:
        return self._at.realloc(self._at.ctx, block, size) or 0

    def free(self, block: int, size: int = UNKNOWN) -> None:
        self._at.free(self._at.ctx, block, size)
