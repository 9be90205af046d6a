"""CuPy's arrays over host memory for pool_program."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from stowplan import CupyPool

from ..allocator.cupy_host import HostUpstream, address, cupy
from .pool_program import Backend, make_pool


class CupyBackend(Backend):
    """A CupyPool over an upstream of its own. CuPy zeroes with a kernel, so nothing here does."""

    def __init__(self, file: Path | None = None, **options: Any) -> None:
        self.failures = 0
        self.upstream = HostUpstream(self._fails)
        defaults = {"device": 0, "warmup": 0, "planning_share": math.inf}
        self.pool = make_pool(CupyPool, file, self.upstream, **{**defaults, **options})

    def _fails(self, number: int, size: int) -> bool:
        self.failures -= 1
        return self.failures >= 0

    def allocate(self, size: int, zeroed: bool) -> Any:
        with cupy.cuda.using_allocator(self.pool.malloc):
            return cupy.empty(size, cupy.uint8)

    def address(self, array: Any) -> int:
        return address(array)

    def fail(self, times: int) -> bool:
        self.failures = times
        return True

    def check(self) -> None:
        self.pool._on(0).backend.settle()  # what was freed where nothing had been asked for
        assert self.upstream.live_bytes == self.pool.stats.reserved_bytes
        assert not self.upstream.overwritten
