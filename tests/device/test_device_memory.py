"""What CupyPool takes of devices of other kinds: other pages, too little memory, no virtual memory."""

from __future__ import annotations

import pytest

from .programs import run


@pytest.mark.parametrize("size", ["100_000", "400_000", "3_000_000"])
def test_small_steps_are_replayed_whatever_the_page(size: str) -> None:
    program = f"""
import cupy
from stowplan import CupyPool

pool = CupyPool()
cupy.cuda.set_allocator(pool.malloc)
for _ in range(20):
    with pool.step():
        x = cupy.empty({size}, cupy.int8)
        y = cupy.empty({size}, cupy.int8)
        del x
        z = cupy.empty({size}, cupy.int8)
        del y, z
    pool.wait()
stats = pool.stats
assert stats.replayed >= 3 * 16, stats
assert stats.arena_bytes - stats.lower_bound < 2 << 20, stats
"""
    run(program, SIMHIP_PAGE="2MiB")
    run(program, SIMHIP_PAGE="4KiB")


def test_a_full_device_s_block_has_memory_of_the_arena_s() -> None:
    program = """
import cupy
from tests.gpu.test_device_memory_gpu import CupyPool, MIB, train
pool = CupyPool()
cupy.cuda.set_allocator(pool.malloc)
train(cupy, pool, 6)
assert pool.stats.replayed > 0
kept = cupy.cuda.alloc(cupy.cuda.runtime.memGetInfo()[0])  # all that is left
before = pool.stats.arena_bytes
with pool.step():
    first = cupy.full(MIB, 0, cupy.int8)
    second = cupy.zeros(MIB // 2, cupy.int16) + 1  # not as planned
    assert int(second.sum()) == MIB // 2
print(pool.stats.guests or before - pool.stats.arena_bytes)  # a place in it, or pages that it gave back
"""
    assert int(run(program, SIMHIP_MEMORY="10MiB").stdout) > 0


def test_without_virtual_memory_arenas_are_segments() -> None:
    program = """
import cupy
from tests.gpu.test_device_memory_gpu import CupyPool, in_use, train
pool = CupyPool()
cupy.cuda.set_allocator(pool.malloc)
used = train(cupy, pool, 8)
stats = pool.stats
assert stats.replayed > 0 and stats.arena_bytes == stats.lower_bound, stats
assert used[-1] == stats.reserved_bytes, (used, stats)
assert used[-1] <= max(used[:3]) * 1.02, used
assert not pool._pool_of(0).grows_in_place  # so plans are made for arenas that do not
"""
    run(program, SIMHIP_VIRTUAL_MEMORY="0", SIMHIP_GRANULARITY="512")
