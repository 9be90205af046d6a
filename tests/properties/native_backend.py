"""Blocks behind C functions for pool_program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stowplan.allocator._core import NativePlace
from stowplan.allocator.backends.native_pool import NativeHostPool

from ..allocator.c_functions import UNKNOWN, CFunctions, LibcUpstream
from .pool_program import make_pool


class _PlacePool(NativeHostPool):
    """A pool for whoever calls the functions of a place, all requests of which are planned."""

    def __init__(self, place: NativePlace, **options: Any) -> None:
        self._own_place = place
        defaults = {"planner": "auto", "max_plans": 32, "warmup": 0, "limit": None, "plans": None}
        super().__init__(small=0, **{**defaults, **options})

    def _place(self) -> NativePlace:
        return self._own_place

    def _take_place(self) -> None:
        pass  # nobody called anything else

    def _leave_place(self) -> None:
        pass

    def _backend(self) -> str:
        return "test: place"


class Block:
    """Bytes that some functions have given, and take back when nobody holds them."""

    def __init__(self, functions: CFunctions, upstream: LibcUpstream, size: int, zeroed: bool) -> None:
        self._functions, self._upstream = functions, upstream  # what is called when it dies
        self.address = 0
        self.address = functions.calloc(1, size) if zeroed else functions.malloc(size)
        self._size = size
        if not self.address:
            raise MemoryError

    def resize(self, size: int) -> None:
        self.address, self._size = self._functions.realloc(self.address, size), size
        assert self.address

    def __del__(self) -> None:
        if self.address:  # the size is as good as unknown
            self._functions.free(self.address, self._size if self._size % 2 else UNKNOWN)


class NativeBackend:
    """A pool that is asked by its own functions, and by its place's where it is installed there."""

    resizes = True
    zeroes = True
    marks = True
    installs = True
    scope = "thread"

    def __init__(self, plans: Path | None = None) -> None:
        self.upstream = LibcUpstream()
        place = NativePlace(self.upstream.address)
        self.pool = make_pool(_PlacePool, plans, place, scope=self.scope, auto_step=not self.marks)
        self.own, self.places = CFunctions(self.pool._host.functions), CFunctions(place.functions)

    def allocate(self, size: int, zeroed: bool) -> Block:
        return Block(self.places if self.pool._host.installed else self.own, self.upstream, size, zeroed)

    def address(self, block: Block) -> int:
        return block.address

    def asked(self, size: int) -> int:
        return size

    def resize(self, block: Block, size: int) -> None:
        failures, block._upstream.failures = block._upstream.failures, 0
        block.resize(size)
        block._upstream.failures = failures

    def fail(self, times: int) -> bool:
        self.upstream.failures = times
        return True

    def check(self) -> None:
        stats = self.pool.stats
        assert sum(self.upstream.live.values()) == stats.reserved_bytes - stats.arena_bytes


class UnmarkedNativeBackend(NativeBackend):
    """A pool that finds the steps of the process itself."""

    marks = False
    scope = "process"
