"""CupyPool: threads, garbage collection, pools that go before their blocks, the interpreter going down."""

from __future__ import annotations

import gc
from typing import Any

from stowplan import CupyPool

from ..children import end_quietly
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


def test_interpreter_exit_with_live_arrays_and_a_hook() -> None:
    end_quietly("""
import warnings
warnings.simplefilter("ignore")
from tests.allocator.cupy_host import HostUpstream, cupy, fill, holds
from stowplan import CupyPool
pool = CupyPool(HostUpstream(), device=0)
cupy.cuda.set_allocator(pool.malloc)
hook = cupy.cuda.memory_hooks.DebugPrintHook(file=open("/dev/null", "w"), flush=False)
hook.__enter__()
kept = []
for i in range(8):
    with pool.step():
        a = fill(cupy.empty(5000, cupy.uint8), i)
        kept.append(a[:10]) if i > 5 else None
        temporary = cupy.empty(5000, cupy.uint8)
        del a, temporary
    pool.wait()
assert pool.stats.replayed > 0
class Late:
    def __del__(self):
        assert holds_here(kept_here[-1], 7)
kept_here, holds_here, late = kept, holds, Late()
""")
