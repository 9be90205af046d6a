"""Blocks behind C functions for pool_program."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from stowplan.allocator._core import NativePlace
from stowplan.allocator.backends.host_pool import HostPool

from ..allocator.c_functions import CFunctions, LibcUpstream
from .pool_program import Backend, make_pool


class PlacePool(HostPool):
    """A pool for whoever calls the functions of a place, all requests of which are planned."""

    def __init__(self, place: NativePlace, **options: Any) -> None:
        self._own_place = place
        super().__init__(**{"warmup": 0, **options})

    def _place(self) -> NativePlace:
        return self._own_place

    def _backend(self) -> str:
        return "test: place"


_owners: dict[int, CFunctions] = {}  # of the blocks alive: who has given them


class _Address(int):
    """A block's address, which frees it when nobody holds it.

    The garbage collector does not look into its kind, as into an array's data: it goes after all finalizers.
    """

    __slots__ = ()

    def __del__(self) -> None:
        functions = _owners.pop(int(self), None)
        if functions is not None:
            functions.free(int(self))


class Block:
    """Bytes that some functions have given."""

    def __init__(self, functions: CFunctions, size: int, zeroed: bool) -> None:
        found = functions.calloc(1, size) if zeroed else functions.malloc(size)
        if not found:
            raise MemoryError
        self._own(functions, found)

    def resize(self, size: int) -> None:
        """Change the size; upstream does not fail meanwhile."""
        functions = _owners.pop(self.address)
        assert functions.upstream is not None
        functions.upstream.failures, failures = 0, functions.upstream.failures
        self._own(functions, functions.realloc(self.address, size))
        functions.upstream.failures = failures

    def _own(self, functions: CFunctions, found: int) -> None:
        self.address = _Address(found)  # the former one goes first: it may be the same
        _owners[found] = functions


class NativeBackend(Backend):
    """A pool that is asked by its own functions, and by its place's where it is installed there."""

    resizes = True
    zeroes = True
    installs = True
    scope = "thread"

    def __init__(self, file: Path | None = None, **options: Any) -> None:
        self.upstream = LibcUpstream()
        place = NativePlace(self.upstream.address)
        defaults = {"scope": self.scope, "planning_share": math.inf}
        self.pool = make_pool(PlacePool, file, place, **{**defaults, **options})
        self.own = CFunctions(self.pool._host.functions, self.upstream)
        self.places = CFunctions(place.functions, self.upstream)

    def allocate(self, size: int, zeroed: bool) -> Block:
        return Block(self.places if self.pool._host.installed else self.own, size, zeroed)

    def address(self, block: Block) -> int:
        return block.address

    def resize(self, block: Block, size: int) -> None:
        block.resize(size)

    def fail(self, times: int) -> bool:
        self.upstream.failures = times
        return True

    def check(self) -> None:
        stats = self.pool.stats
        assert sum(self.upstream.live.values()) == stats.reserved_bytes - stats.arena_bytes


class ProcessNativeBackend(NativeBackend):
    """A pool whose steps are the process's."""

    of_process = True
    scope = "process"
