"""CupyPool: several kinds of steps, and parts that are taken out of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stowplan import CupyPool
from stowplan.errors import PoolError, ProfileError

from .cupy_host import HostUpstream, chain, cupy, empty, holds, run

TRAIN, EVALUATE, SHORT = (3000, 700, 1500, 900), (5000, 100), (3000, 700, 20)


@pytest.mark.parametrize("keys", [("train", "eval", "short"), (None, None, None)])
def test_alternating_steps_make_three_plans_and_no_more(
    upstream: HostUpstream, keys: tuple[str | None, ...]
) -> None:
    pool = CupyPool(upstream, device=0, warmup=0)
    with cupy.cuda.using_allocator(pool.malloc):
        for round_ in range(10):
            before = pool.stats
            for key, sizes in zip(keys, (TRAIN, EVALUATE, SHORT), strict=True):
                run(pool, 1, lambda sizes=sizes: chain(sizes), key)
            if round_ >= 2:
                assert pool.stats.reasons == before.reasons
    assert (pool.stats.plans, pool.stats.reoptimizations) == (3, 0)
    assert upstream.live_bytes == pool.stats.arena_bytes  # one arena for all


def test_interrupted_parts_stay_out_of_the_profile(pool: CupyPool) -> None:
    kept: list[Any] = []

    @pool.interrupt
    def decorated(size: int) -> None:
        empty(size)

    for i in range(10):
        with pool.step():
            born_before = empty(300, 1)
            with pool.interrupt():
                kept.append(empty(1000 + 100 * i, 4))  # another size each time
                assert holds(born_before, 1)
                del born_before
                with pool.interrupt():
                    empty(70 * i + 1)
                empty(90 * i + 1)
            chain()
            pool.interrupt()
            empty(10 + i)
            pool.resume()
            decorated(20 + i)
        pool.wait()
    assert pool.stats.plans == 1
    assert set(pool.stats.reasons) == {"no_plan", "interrupted"}
    assert all(holds(a, 4) for a in kept)


def test_misuse_of_interruptions_and_steps_is_refused(pool: CupyPool) -> None:
    with pytest.raises(PoolError, match="resume without interrupt"):
        pool.resume()
    with pool.interrupt(), pytest.raises(PoolError, match="in an interrupted part"), pool.step():
        pass
    with pool.step(), pytest.raises(PoolError, match="steps do not nest"), pool.step():
        pass
    with pytest.raises(ProfileError, match="no plan yet"):
        pool.profile()
    run(pool, 6)
    assert pool.stats.plans == 1


def test_an_exception_leaves_the_pool_usable(pool: CupyPool) -> None:
    def broken() -> None:
        empty(1234)
        raise KeyError("user's")

    for _ in range(3):
        with pytest.raises(KeyError, match="user's"):
            run(pool, 1, broken)
    run(pool, 5)
    with pytest.raises(KeyError, match="user's"):
        run(pool, 1, broken)
    before = pool.stats
    run(pool, 1)
    assert pool.stats.replayed - before.replayed == len(pool.profile())


def test_steps_are_found_without_marks() -> None:
    upstream = HostUpstream()
    pool = CupyPool(upstream, device=0, auto_step=True)
    kept = None
    with cupy.cuda.using_allocator(pool.malloc):
        for i in range(20):
            blocks = [cupy.empty(size, cupy.uint8) for size in (5000, 700, 9000, 700)]
            del blocks[1]
            kept = blocks.pop()  # until the next step's is there
            del blocks
            pool.wait()
            if i == 9:
                before = pool.stats
    stats = pool.stats
    assert stats.replayed - before.replayed == 40
    assert stats.upstream == before.upstream
    assert stats.steps > 2
    assert upstream.live_bytes == stats.reserved_bytes == stats.arena_bytes
    assert kept is not None


def test_a_second_run_finds_the_plans_of_the_first(tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        pool = CupyPool(HostUpstream(), device=0, plans=tmp_path)
        with cupy.cuda.using_allocator(pool.malloc):
            for key, sizes in 3 * [("train", TRAIN), ("train", TRAIN), ("train", TRAIN), ("eval", EVALUATE)]:
                run(pool, 1, lambda sizes=sizes: chain(sizes), key)
        runs.append(pool.stats)
    first, second = runs
    assert (first.packed, second.packed) == (2, 0)
    assert (first.plans, second.plans) == (2, 2)
    assert second.replayed == first.replayed > 0
