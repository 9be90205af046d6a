"""What CupyPool takes of a device: its heap, arenas that grow, and the account that both keep to.

The account is the driver's, to the byte. Kernels take memory of the device when they are first used, so each test has
them loaded before it counts.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from stowplan import CupyPool
from stowplan.allocator.backends.cupy_pool import UNIT

from .driver import granule, in_use, page

pytestmark = pytest.mark.gpu

MIB = 1 << 20
Allocate = Callable[[int], Any]


@pytest.fixture(autouse=True)
def loaded(cupy: Any) -> None:
    """Have the kernels loaded that `train` runs."""
    block = cupy.full(8, 1, cupy.int8) + cupy.full(8, 1, cupy.int8)
    block += block
    assert int(block.sum(dtype=cupy.int64)) == 32


def most_in_use(cupy: Any, allocate: Allocate, seed: int, operations: int = 600) -> tuple[int, int]:
    """Run a seeded program of requests and frees; return the most bytes of the device that it has in use, and live."""
    before, choose = in_use(cupy), random.Random(seed)
    blocks: list[Any] = []
    live = most_live = most = 0
    for _ in range(operations):
        if blocks and choose.random() < 0.5:
            live -= blocks.pop(choose.randrange(len(blocks)))[1]
        else:
            size = choose.choice((700, 5_000, 300_000, 2_000_000, 16_000_000)) + UNIT * choose.randrange(8)
            rounded = -(-size // UNIT) * UNIT
            blocks.append((allocate(size), rounded))
            live += rounded
        most_live = max(most_live, live)
        most = max(most, in_use(cupy) - before)
    return most, most_live


@pytest.mark.parametrize("seed", range(5))
def test_the_heap_takes_little_more_than_was_live(cupy: Any, seed: int) -> None:
    before, pool = in_use(cupy), CupyPool(device=0)
    most, live = most_in_use(cupy, pool.malloc, seed)
    assert (pool.stats.reserved_bytes, pool.stats.peak_reserved_bytes) == (in_use(cupy) - before, most)
    assert live <= most <= 1.2 * live + page()


def test_a_limit_holds_and_says_so(cupy: Any) -> None:
    pool, size = CupyPool(device=0), 2 * MIB
    pool.set_limit(size=4 * size)
    kept = [pool.malloc(size) for _ in range(3)]
    del kept[0]
    kept.append(pool.malloc(2 * size))  # the hole is not large enough: its memory moves
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match=f"allocating {size:,} bytes"):
        pool.malloc(size)
    assert pool.total_bytes() == 4 * size


def test_what_lives_long_keeps_few_pages(cupy: Any) -> None:
    """As the states of parameters do, which are made while the first step's activations are alive."""
    before, pool, size, each = in_use(cupy), CupyPool(device=0), page() // 8, 8
    blocks: list[Any] = [pool.malloc(size) for _ in range(10 * each)]
    freed = [number for number in range(len(blocks)) if number % each]
    random.Random(0).shuffle(freed)
    for number in freed:
        blocks[number] = None
    states = [pool.malloc(size) for _ in range(2 * each)]
    del blocks
    pool.free_all_blocks()
    assert in_use(cupy) - before == pool.total_bytes() <= 3 * page()
    del states


@pytest.mark.parametrize("grows", [False, True])
def test_sizes_that_vary_need_few_calls_of_the_driver(
    cupy: Any, calls: Callable[[], int], grows: bool
) -> None:
    pool, draw, kept = CupyPool(device=0), random.Random(0), None
    live = counted = 0
    for step in range(40):
        counted = calls() if step == 20 else counted
        size = (step + 1) * MIB // 2 if grows else draw.randrange(2 * MIB, 8 * MIB)
        blocks = [pool.malloc(size * share // 4) for share in (1, 2, 3, 4)]
        kept = kept if kept is not None and not grows else blocks.pop()
        live = max(live, 7 * size // 2)
        del blocks
        cupy.cuda.Device().synchronize()
    assert calls() - counted <= (240 if grows else 20) or page() < 2 * MIB  # memory then comes in more pieces
    assert pool.total_bytes() <= 1.2 * live + page()


def train(cupy: Any, pool: Any, steps: int, sizes: Callable[[int], int] = lambda _: MIB) -> list[int]:
    """Run steps that leave a block for the next one, as training leaves gradients; return the bytes in use after each.

    Without what was in use before.
    """
    before = in_use(cupy) - pool.stats.reserved_bytes
    gradient, used = None, []
    for step in range(steps):
        with pool.step():
            activations = [cupy.full(sizes(step), i, cupy.int8) for i in range(4)]
            gradient = None
            gradient = activations[0] + activations[1]
            gradient += activations[3]
            del activations
        pool.wait()
        assert int(gradient.sum(dtype=cupy.int64)) == 4 * sizes(step)
        used.append(in_use(cupy) - before)
    return used


def test_gradients_are_not_held_twice(cupy: Any, either: Any) -> None:
    pool = either()
    cupy.cuda.set_allocator(pool.malloc)
    used = train(cupy, pool, 8)
    assert pool.stats.replayed > 0
    assert used[-1] == pool.stats.reserved_bytes
    assert pool.stats.reserved_bytes <= pool.stats.peak_reserved_bytes
    assert pool.stats.peak_reserved_bytes <= 1.2 * pool.stats.peak_live_bytes + 3 * page()


def test_a_larger_plan_makes_the_arena_grow(cupy: Any, either: Any) -> None:
    before, pool = in_use(cupy), either()
    cupy.cuda.set_allocator(pool.malloc)
    small = train(cupy, pool, 6)
    large = train(cupy, pool, 6, lambda _: 2 * MIB)
    assert max(large) <= 1.1 * 2 * max(small) + page()  # the account, doubled where much moves
    assert large[-1] == pool.stats.reserved_bytes
    pool.free_all_blocks()
    del pool
    cupy.cuda.set_allocator(None)
    assert in_use(cupy) == before


def test_an_arena_that_made_room_many_times_in_a_step_soon_grows_again(cupy: Any, either: Any) -> None:
    pool = either()
    cupy.cuda.set_allocator(pool.malloc)
    train(cupy, pool, 6, lambda _: 8 * MIB)
    arena = pool.stats.arena_bytes
    blocks = [cupy.empty(8 * MIB, cupy.int8) for _ in range(4)]  # each has pages of the arena go
    assert pool.stats.arena_bytes < arena / 2
    del blocks
    train(cupy, pool, 4, lambda _: 8 * MIB)
    assert pool.stats.arena_bytes == arena


def test_an_evaluation_every_ten_steps_leaves_the_others_replayed(cupy: Any, either: Any) -> None:
    """Each evaluation takes pages from the arena."""
    pool = either()
    cupy.cuda.set_allocator(pool.malloc)
    replayed = []
    for step in range(40):
        before = pool.stats.replayed
        train(cupy, pool, 1, lambda _: 8 * MIB)
        replayed.append(pool.stats.replayed - before)
        if step % 10 == 0:
            blocks = [cupy.empty(8 * MIB, cupy.int8) for _ in range(4)]
            del blocks
    full = max(replayed)
    assert sum(count == full for count in replayed) > 28
    assert pool.stats.peak_reserved_bytes <= 1.2 * pool.stats.peak_live_bytes + 2 * page()


def test_an_upstream_that_keeps_memory_is_warned_of(cupy: Any) -> None:
    pool = CupyPool(cupy.cuda.malloc_managed)
    cupy.cuda.set_allocator(pool.malloc)
    with pytest.warns(RuntimeWarning, match="has no free_all_blocks") as caught:
        train(cupy, pool, 12, lambda step: MIB if step < 6 else 2 * MIB)
    assert len(caught) == 1


def test_an_upstream_pool_is_trimmed_for_the_arena(cupy: Any) -> None:
    upstream = cupy.cuda.MemoryPool()
    pool = CupyPool(upstream)
    cupy.cuda.set_allocator(pool.malloc)
    used = train(cupy, pool, 8)
    assert pool.stats.replayed > 0
    assert pool.stats.reserved_bytes == upstream.total_bytes()
    assert abs(used[-1] - upstream.total_bytes()) < 2 * granule()  # it counts what it asked for


def test_without_managed_memory_the_error_is_that_of_cupy_s_pools(cupy: Any) -> None:
    pool = CupyPool(sample="managed")
    cupy.cuda.set_allocator(pool.malloc)
    kept = cupy.empty(MIB, cupy.int8)
    with (
        pytest.raises(cupy.cuda.memory.OutOfMemoryError, match=f"so far: {kept.nbytes:,} bytes"),
        pool.step(),
    ):
        cupy.empty(1 << 50, cupy.int8)
    assert "upstream has no memory" in pool.report()


@pytest.mark.parametrize("size", [2**60, 2**61 - 75])
def test_an_array_too_large_for_64_bits_leaves_the_pool_as_it_was(cupy: Any, size: int) -> None:
    """CuPy multiplies without a look at the overflow, and asks for a size below 0."""
    pool = CupyPool()
    cupy.cuda.set_allocator(pool.malloc)
    first = cupy.full(4, 7, cupy.int8)
    with pytest.raises((OverflowError, MemoryError, ValueError)):
        cupy.empty(size, cupy.float64)
    others = [cupy.full(4, 9, cupy.int8) for _ in range(3)]
    assert int(first.sum()) == 28
    assert [int(other.sum()) for other in others] == [36] * 3


def test_a_cycle_that_goes_makes_room_in_its_page(cupy: Any) -> None:
    class Cycle:
        def __init__(self, block: Any) -> None:
            self.me, self.block = self, block

    pool, half = CupyPool(device=0), page() // 2
    pool.set_limit(size=page())
    kept = pool.malloc(half)
    Cycle(pool.malloc(half))
    assert pool.malloc(half).ptr != kept.ptr


@pytest.mark.parametrize("seed", range(4))
def test_any_requests_keep_the_account(cupy: Any, seed: int) -> None:
    """Blocks of two streams do not overlap, the account is the driver's after each operation, and all goes back."""
    draw, pool, half = random.Random(seed), CupyPool(device=0), page() // 2
    before = in_use(cupy)
    streams = [cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)]
    blocks: list[Any] = []
    for _ in range(200):
        what = draw.random()
        if what < 0.55:
            sizes = (1, 512, 513, half - 1, half, half + 1, page(), page() + 1, draw.randrange(1, half))
            with draw.choice(streams), contextlib.suppress(cupy.cuda.memory.OutOfMemoryError):
                blocks.append(pool.malloc(draw.choice(sizes)))
        elif what < 0.93 and blocks:
            blocks.pop(draw.randrange(len(blocks)))
        elif what < 0.95:
            pool.free_all_blocks()
        elif what < 0.97:
            with pool.step():
                pass
        else:
            pool.set_limit(size=draw.choice((0, 0, page() + 7, 10 * page())))
        assert pool.total_bytes() == in_use(cupy) - before
        ends = sorted((block.ptr, block.ptr + -(-block.mem.size // UNIT) * UNIT) for block in blocks)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
    blocks.clear()
    pool.free_all_blocks()
    assert in_use(cupy) == before
    assert pool.total_bytes() == 0


def test_a_finalizer_may_ask_in_the_midst_of_a_stream_s_first_request(
    cupy: Any, request: pytest.FixtureRequest
) -> None:
    """Wherever the garbage collector comes in it, the finalizer's block and its page go back."""
    kept: list[Any] = []

    class Asks:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            kept.append(cupy.empty(8, cupy.int8))

    request.addfinalizer(functools.partial(gc.set_threshold, *gc.get_threshold()))
    pool = CupyPool()
    cupy.cuda.set_allocator(pool.malloc)
    for number in range(1, 40):
        gc.set_threshold(0)
        with cupy.cuda.Stream(non_blocking=True):
            cupy.empty(4 * MIB, cupy.int8)
            Asks()
            gc.set_threshold(number)
            block = cupy.empty(8, cupy.int8)
            gc.set_threshold(0)
        del block
        gc.collect()
        kept.clear()
        cupy.empty(4 * MIB, cupy.int8)
    pool.free_all_blocks()
    assert (pool.stats.live_bytes, pool.stats.reserved_bytes) == (0, 0)
