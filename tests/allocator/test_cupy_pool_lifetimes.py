"""CupyPool: threads, garbage collection, pools that go before their blocks, the interpreter going down."""

from __future__ import annotations

import gc
from typing import Any

from stowplan import CupyPool

from ..running import run
from .cupy_host import HostUpstream, chain, cupy, empty


def test_a_pool_dies_in_a_cycle_with_its_blocks(upstream: HostUpstream) -> None:
    holder: dict[str, Any] = {}

    def allocate(size: int, held: object = holder) -> Any:  # upstream holds the pool and its arrays
        return upstream(size)

    holder["pool"] = pool = CupyPool(allocate, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 5, chain)
        with pool.step():
            holder["array"] = empty(64, 1)
    assert upstream.live_bytes > 0
    del pool, holder, allocate
    gc.collect()
    assert upstream.live_bytes == 0
