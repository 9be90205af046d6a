"""A pool in the place of NumPy's default handler: all threads, all contexts, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.errors import PoolError

from ..running import run


@pytest.fixture
def pool() -> Iterator[NumpyPool]:
    pool = NumpyPool()
    pool.install()
    yield pool
    if pool._host.installed:
        pool.uninstall()


def tile(pool: NumpyPool, seed: int, size: int = 20_000, meet: Callable[[], object] = int) -> float:
    """Work on a tile in one thread, some steps; `meet` is called in each."""
    random = np.random.default_rng(seed)
    total = 0.0
    for _ in range(30):
        with pool.step():
            meet()
            a = random.random(size)
            b = np.zeros(size + 100)
            b[:size] = a * 2
            total += float(np.concatenate([a, b]).sum())
    return total


def test_an_executor_s_threads_are_served_from_plans(pool: NumpyPool) -> None:
    expected = [tile(pool, seed) for seed in range(3)]
    work = partial(tile, pool, meet=Barrier(3, timeout=60).wait)  # always three steps at once
    with ThreadPoolExecutor(3) as executor:
        for _ in range(10):
            assert list(executor.map(work, range(3))) == expected
            pool.wait()
        before = pool.stats
        assert list(executor.map(work, range(3))) == expected
        after = pool.stats
    replayed = after.replayed - before.replayed
    assert replayed > 0.9 * (after.requests - before.requests)


def test_tasks_of_asyncio_are_served(pool: NumpyPool) -> None:
    async def work(seed: int) -> float:
        await asyncio.sleep(0)
        return tile(pool, seed) + await asyncio.to_thread(tile, pool, seed)

    async def main() -> list[float]:
        return await asyncio.gather(*(work(seed) for seed in range(3)))

    before = pool.stats.requests
    assert asyncio.run(main()) == [2 * tile(pool, seed) for seed in range(3)]
    assert pool.stats.requests - before > 6 * 30 * 3


def test_what_makes_plans_is_not_served() -> None:
    pool = NumpyPool(warmup=0)
    pool.install()
    try:
        run(pool, 6, lambda: np.ones(1000).sum())
    finally:
        pool.uninstall()
    assert pool.stats.plans == 1
    assert pool.stats.requests == 6


def test_one_at_a_time(pool: NumpyPool) -> None:
    with pytest.raises(PoolError, match="another pool serves already"):
        NumpyPool().install()
    with pytest.raises(PoolError, match="this pool serves already"):
        pool.install()
    with pytest.raises(PoolError, match="this pool is not installed"):
        NumpyPool().uninstall()


def test_an_entered_pool_serves_its_context_within(pool: NumpyPool) -> None:
    own = NumpyPool()
    with own:
        block = np.ones(1000)
    assert (own.stats.live_bytes, pool.stats.live_bytes) == (8000, 0)
    with pool.serving():
        other = np.ones(500)
    assert pool.stats.live_bytes == 4000
    del block, other


def test_trim_gives_back_the_pages_of_arenas_in_which_nothing_lives() -> None:
    pool = NumpyPool(warmup=0)
    with pool:
        for _ in range(4):
            with pool.step():
                np.empty(1 << 20, dtype=np.uint8).fill(1)
            pool.wait()
        with pool.step():
            alive = np.empty(1 << 20, dtype=np.uint8)
            assert alive.all()
            pool.trim()
            assert alive.all()
            del alive
        pool.trim()
        with pool.step():
            assert not np.empty(1 << 20, dtype=np.uint8).any()
        assert pool.stats.replayed >= 3


def test_the_heap_serves_alone_until_a_step_is_marked() -> None:
    pool = NumpyPool(warmup=0)
    pool.serve_by_heap()
    with pool:
        for _ in range(10):
            kept = np.ones(10**5) * 2
        before = pool.stats
        assert (before.reasons, before.steps) == ({"heap_only": 10}, 0)
        pages = -(-kept.nbytes // 4096) * 4096
        assert (before.live_bytes, before.peak_live_bytes) == (pages, 2 * pages)
        for _ in range(4):
            with pool.step():
                kept = np.ones(10**5) * 2
            pool.wait()
    assert pool.stats.replayed == 2
    assert pool.stats.reasons["heap_only"] == 10
