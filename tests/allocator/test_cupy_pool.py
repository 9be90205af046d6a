"""CupyPool on real CuPy objects over host memory, no driver: steps are replayed, and blocks keep their bytes."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan import CupyPool

from .cupy_host import SIZES, HostUpstream, address, chain, cupy, empty, holds, run


def test_steps_are_replayed(pool: CupyPool, upstream: HostUpstream) -> None:
    run(pool, 4)
    before = len(upstream.sizes)
    run(pool, 6)
    stats = pool.stats
    assert stats.plans == 1
    assert set(stats.reasons) == {"no_plan"}  # warm-up, record and confirm only
    assert stats.replayed == 7 * len(pool.profile())
    assert stats.live_bytes == 0
    assert len(upstream.sizes) == before


def test_the_arena_is_at_the_lower_bound_and_the_only_memory_held(
    pool: CupyPool, upstream: HostUpstream
) -> None:
    run(pool, 10)
    stats = pool.stats
    assert stats.arena_bytes == stats.lower_bound == pool.plan().arena_bytes == upstream.live_bytes
    assert stats.fragmentation == 0
    assert pool.plan().arena_bytes % 512 == 0


def test_addresses_are_aligned_and_come_again(pool: CupyPool) -> None:
    seen: list[list[int]] = []

    def work() -> None:
        seen.append([address(empty(size)) for size in SIZES])

    run(pool, 8, work)
    assert all(a % 512 == 0 for step in seen for a in step)
    assert seen[-1] == seen[-2] == seen[-3]


def test_set_allocator_serves_the_process(upstream: HostUpstream) -> None:
    pool = CupyPool(upstream, device=0)
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(pool.malloc)
    try:
        run(pool, 8)
    finally:
        cupy.cuda.set_allocator(before)
    assert pool.stats.replayed > 0
    assert set(pool.stats.reasons) == {"no_plan"}


def test_wrapped_blocks_are_planned(pool: CupyPool) -> None:
    gradient = None

    def work() -> None:
        nonlocal gradient
        activation = empty(5000, 1)
        assert gradient is None or holds(gradient, 2)
        gradient = None  # of the step before
        gradient = empty(5000, 2)
        assert holds(activation, 1)

    run(pool, 8, work)
    assert pool.profile().wrapped.sum() == 1
    assert set(pool.stats.reasons) == {"no_plan"}
    assert holds(gradient, 2)


def test_late_blocks_keep_their_bytes(pool: CupyPool) -> None:
    kept: list[Any] = []

    def work(keep: bool = False) -> None:
        a = empty(4000, 1)
        if keep:
            kept.append(a)
        del a
        b = empty(4000, 2)  # planned at the same address
        assert holds(b, 2)

    run(pool, 5, work)
    assert pool.stats.arena_bytes == 4096
    for _ in range(3):
        run(pool, 1, lambda: work(keep=True))
    run(pool, 3, work)
    assert pool.stats.reasons["late"] > 0
    assert all(holds(a, 1) for a in kept)


def test_a_block_kept_for_many_steps_keeps_its_bytes(pool: CupyPool) -> None:
    kept: list[Any] = []

    def work(keep: bool = False) -> None:
        for byte, size in enumerate(SIZES):
            array = empty(size, byte)
            if keep and byte == 2:
                kept.append(array)

    run(pool, 5, work)
    for _ in range(6):
        run(pool, 1, lambda: work(keep=True))
        run(pool, 10, work)
    assert all(holds(a, 2) for a in kept)
    assert len({address(a) for a in kept}) == 6
    kept.clear()
    replayed = pool.stats.replayed
    run(pool, 3, work)
    assert pool.stats.replayed - replayed == 3 * len(SIZES)


@pytest.mark.parametrize("size", [1, 777, 500_000])
def test_an_extra_request_costs_few_others_their_place(pool: CupyPool, size: int) -> None:
    run(pool, 5)
    before = pool.stats
    with pool.step():
        extra = empty(size, 3)
        chain()
    assert holds(extra, 3)
    assert 1 <= (len(pool.profile()) + 1) - (pool.stats.replayed - before.replayed) <= 3


def test_larger_smaller_and_missing_requests(pool: CupyPool) -> None:
    run(pool, 5)
    for sizes in ((4000, 700, 1500, 900), (2000, 700, 1500, 900), (3000, 1500, 900), SIZES[::-1], (9, 9)):
        run(pool, 1, lambda sizes=sizes: chain(sizes))
        run(pool, 1)
    stats = pool.stats
    assert stats.smaller >= 1
    assert stats.missing >= 1
    assert stats.reasons["mismatch"] >= 2
    assert stats.live_bytes == 0


def test_a_larger_step_brings_a_new_plan_and_a_new_arena(pool: CupyPool, upstream: HostUpstream) -> None:
    larger = tuple(2 * size for size in SIZES)
    run(pool, 5)
    first = pool.plan().arena_bytes
    run(pool, 6, lambda: chain(larger))
    assert pool.stats.plans == 2
    assert pool.plan().arena_bytes > first
    assert (
        upstream.live_bytes == pool.stats.arena_bytes == pool.plan().arena_bytes
    )  # the first arena has gone


def test_an_old_arena_stays_while_a_block_lives_in_it(pool: CupyPool, upstream: HostUpstream) -> None:
    run(pool, 4)
    with pool.step():
        chain()
        kept = empty(600, 5)
    run(pool, 1)
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
