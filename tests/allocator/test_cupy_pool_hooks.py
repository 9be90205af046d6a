"""CupyPool: memory hooks of CuPy's and Chainer's see what CuPy's own pool would tell them."""

from __future__ import annotations

import pytest

from stowplan import CupyPool

from ..running import in_threads, run
from .cupy_host import SIZES, address, chain, cupy, empty


class Counting(cupy.cuda.MemoryHook):
    """Keep what CuPy's interface says of every event."""

    name = "Counting"

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, int]]] = []

    def malloc_preprocess(self, **event: int) -> None:
        self.events.append(("about to malloc", event))

    def malloc_postprocess(self, **event: int) -> None:
        self.events.append(("malloc", event))

    def free_preprocess(self, **event: int) -> None:
        self.events.append(("about to free", event))

    def free_postprocess(self, **event: int) -> None:
        self.events.append(("free", event))


def test_memory_hooks_see_what_the_default_pool_would_tell(pool: CupyPool) -> None:
    run(pool, 5, chain)
    hook = Counting()
    with hook:
        with pool.step():
            a = empty(64, 1)
            a_address = address(a)
            del a
            b = empty(3000, 1)
            c = cupy.empty(0)
            del b, c
        outside = empty(100)
        outside_address = address(outside)
        del outside
    kinds = [kind for kind, _ in hook.events]
    block = ["about to malloc", "malloc", "about to free", "free"]
    assert kinds == [*block, *block[:2], *block[:2], *block[2:], *block]
    first = [event for _, event in hook.events[:4]]
    assert first[0] == {"device_id": 0, "size": 64, "mem_size": 512}
    told = {"device_id": 0, "mem_size": 512, "mem_ptr": a_address, "pmem_id": first[1]["pmem_id"]}
    assert first[1] == {**told, "size": 64}
    assert first[2] == first[3] == told
    # An empty block is not told of again.
    assert hook.events[7][1]["mem_size"] == hook.events[7][1]["size"] == 0
    assert hook.events[-1][1]["mem_ptr"] == outside_address
    assert pool.stats.replayed > 2 * len(pool.profile())  # served from the plan all the same


def test_hooks_are_a_thread_s_own(pool: CupyPool) -> None:
    def elsewhere() -> None:
        with cupy.cuda.using_allocator(pool.malloc), theirs:
            chain()
        arrays.pop()

    mine, theirs = Counting(), Counting()
    with mine:
        arrays = [empty(700)]
        for _ in range(3):  # a thread's number may come again, its hooks do not
            in_threads(elsewhere)
            arrays.append(empty(700))
    assert [kind for kind, _ in mine.events] == ["about to malloc", "malloc"] * 4
    assert len(theirs.events) == 3 * 4 * (len(SIZES) + 1)
    arrays.clear()
    assert len(mine.events) == 8  # the last one dies unseen: no hook watches any more


def test_a_hook_s_error_reaches_the_program_and_loses_no_block(pool: CupyPool) -> None:
    class Broken(Counting):
        def malloc_postprocess(self, **event: int) -> None:
            raise ArithmeticError("the hook's")

    with Broken(), pytest.raises(ArithmeticError, match="the hook's"):
        empty(100)
    assert pool.stats.live_bytes == 0
    run(pool, 5, chain)
    assert pool.stats.replayed > 0
