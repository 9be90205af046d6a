"""CupyPool: threads, garbage collection, pools that go before their blocks, the interpreter going down."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from stowplan import CupyPool

from .cupy_host import SIZES, HostUpstream, chain, cupy, empty, holds, run


def test_requests_of_another_thread_change_no_plan(pool: CupyPool) -> None:
    def elsewhere() -> None:
        with cupy.cuda.using_allocator(pool.malloc):
            for _ in range(20):
                chain((500, 800))

    run(pool, 5)
    for _ in range(5):
        with pool.step():
            threads = [threading.Thread(target=elsewhere) for _ in range(3)]
            for thread in threads:
                thread.start()
            chain()
            for thread in threads:
                thread.join()
    assert pool.stats.reasons["thread"] == 5 * 3 * 20 * 3
    assert "mismatch" not in pool.stats.reasons
    assert pool.stats.plans == 1


class Cycle:
    """An array that only the garbage collector frees."""

    def __init__(self, size: int, byte: int) -> None:
        self.array = empty(size, byte)
        self.byte = byte
        self.me = self

    def __del__(self) -> None:
        assert holds(self.array, self.byte)


def test_arrays_in_cycles_die_within_allocations(pool: CupyPool) -> None:
    def work() -> None:
        for byte, size in enumerate(SIZES):
            Cycle(size, byte)
            assert holds(empty(size, 50 + byte), 50 + byte)

    thresholds = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        run(pool, 60, work)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert pool.stats.live_bytes == 0


def test_a_pool_dies_in_a_cycle_with_its_blocks(upstream: HostUpstream) -> None:
    holder: dict[str, Any] = {}

    def allocate(size: int, held: object = holder) -> Any:  # upstream holds the pool and its arrays
        return upstream(size)

    holder["pool"] = pool = CupyPool(allocate, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 5)
        with pool.step():
            holder["array"] = empty(64, 1)
    assert upstream.live_bytes > 0
    del pool, holder, allocate
    gc.collect()
    assert upstream.live_bytes == 0


def test_interpreter_exit_with_live_arrays_and_a_hook() -> None:
    program = f"""
import sys, warnings
sys.path.insert(0, {str(Path(__file__).parent)!r})
warnings.simplefilter("ignore")
from cupy_host import HostUpstream, cupy, fill, holds
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
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
