"""CupyPool on real CuPy objects over host memory, no driver: steps are replayed, and blocks keep their bytes."""

from __future__ import annotations

from typing import Any

from stowplan import CupyPool

from ..running import run
from .cupy_host import SIZES, HostUpstream, chain, cupy, empty, holds


def test_set_allocator_serves_the_process(upstream: HostUpstream) -> None:
    pool = CupyPool(upstream, device=0)
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(pool.malloc)
    try:
        run(pool, 8, chain)
    finally:
        cupy.cuda.set_allocator(before)
    assert pool.stats.replayed > 0
    assert set(pool.stats.reasons) == {"no_plan"}


def test_an_old_arena_stays_while_a_block_lives_in_it(pool: CupyPool, upstream: HostUpstream) -> None:
    run(pool, 4, chain)
    with pool.step():
        chain()
        kept = empty(600, 5)
    run(pool, 1, chain)
    with pool.step():
        kept = empty(64, 6)  # takes the first slot
        chain(SIZES)
    run(pool, 5, lambda: chain(tuple(20 * size for size in SIZES)))
    assert holds(kept, 6)
    del kept
    run(pool, 2, lambda: chain(tuple(20 * size for size in SIZES)))
    assert upstream.live_bytes == pool.stats.arena_bytes == pool.plan().arena_bytes


def test_empty_arrays(pool: CupyPool) -> None:
    def work() -> None:
        arrays = [cupy.empty(0) for _ in range(5)]
        between = empty(100, 4)
        arrays.append(cupy.empty((3, 0, 2)))
        assert holds(between, 4)
        assert all(a.size == 0 for a in arrays)

    run(pool, 8, work)
    assert set(pool.stats.reasons) == {"no_plan"}


def test_a_slice_keeps_the_block(pool: CupyPool) -> None:
    def work() -> Any:
        part = empty(5000, 1)[1000:1100]
        other = empty(5000, 2)
        assert holds(part, 1)
        return other

    run(pool, 8, work)
    assert set(pool.stats.reasons) == {"no_plan"}
    assert pool.stats.live_bytes == 0
    with pool.step():
        part = work()[2:7]
    run(pool, 2, work)
    assert holds(part, 2)
