"""CupyPool: what users know from CuPy's MemoryPool, and several devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool
from stowplan.allocator._core import DeviceRouter
from stowplan.errors import PoolError

from ..running import run
from .cupy_host import HostUpstream, chain, cupy, empty, fill, holds


def test_what_users_know_from_memory_pool(pool: CupyPool, upstream: HostUpstream) -> None:
    array = empty(1000)
    assert pool.used_bytes() == 1000
    assert pool.total_bytes() == 1000
    assert pool.free_bytes() == 0
    run(pool, 5, chain)
    assert pool.total_bytes() == 1000 + pool.plan().arena_bytes
    assert pool.free_bytes() == pool.plan().arena_bytes
    assert pool.n_free_blocks() == 0
    pool.free_all_blocks()
    assert pool.get_limit() == 0
    with pytest.raises(PoolError, match="knows no limit"):
        pool.set_limit(size=100)
    del array
    assert pool.used_bytes() == 0


class Managing(HostUpstream):
    """An upstream that knows limits and free blocks, as `cupy.cuda.MemoryPool` does."""

    limit = 0

    def malloc(self, size: int) -> Any:
        return self(size)

    def total_bytes(self) -> int:
        return 12345

    def n_free_blocks(self) -> int:
        return 6

    def free_all_blocks(self, stream: Any = None) -> None:
        self.freed = stream

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self.limit, self.fraction = size or 0, fraction

    def get_limit(self) -> int:
        return self.limit


def test_an_upstream_with_methods_is_asked() -> None:
    upstream = Managing()
    pool = CupyPool(upstream, device=0)
    pool.set_limit(size=777)
    assert (pool.get_limit(), pool.total_bytes(), pool.n_free_blocks()) == (777, 12345, 6)
    pool.free_all_blocks(stream="a stream")
    assert upstream.freed == "a stream"
    assert pool.free_bytes() == 12345
    assert holds(fill(cupy.ndarray(10, cupy.uint8, memptr=pool.malloc(10)), 3), 3)


def test_a_limit_is_the_upstream_s_of_each_device() -> None:
    upstream = Managing()
    assert CupyPool(upstream, device=0, limit="2 KiB").get_limit() == 2048
    CupyPool(upstream, device=0, limit="75%")
    assert upstream.fraction == 0.75


def test_each_device_has_its_pool() -> None:
    pools = {n: CupyPool(HostUpstream(), device=n).malloc.__self__ for n in (0, 2)}
    asked = []

    def pool_of(device: int) -> Any:
        asked.append(device)
        return pools[device]

    current = iter((2, 0, 2, 0, 1))
    router = DeviceRouter(lambda: next(current), pool_of)
    assert [router.malloc(100).device_id for _ in range(4)] == [2, 0, 2, 0]
    assert asked == [2, 0]
    with pytest.raises(KeyError):
        router.malloc(100)


def test_without_a_driver_the_current_device_is_cupy_s_to_tell(upstream: HostUpstream) -> None:
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
            CupyPool(upstream).malloc(100)
    else:
        pytest.skip("there is a CUDA driver: what happens without one is not to be seen here")


def test_an_idle_arena_goes_before_a_request_fails(pool: CupyPool, upstream: HostUpstream) -> None:
    run(pool, 4, lambda: cupy.empty(10_000, dtype=np.uint8))
    assert pool.stats.arena_bytes > 0
    limit = upstream.live_bytes + 5_000
    upstream.fails = lambda number, size: upstream.live_bytes + size > limit
    kept = cupy.empty(12_000, dtype=np.uint8)  # fits only without the arena
    assert pool.stats.arena_bytes == 0
    del kept
    before = pool.stats
    with pool.step():
        cupy.empty(10_000, dtype=np.uint8)
    assert pool.stats.replayed == before.replayed + 1  # the arena has been taken again
