"""CupyRecorder on hand-made events, and on those of CupyPool over host memory: the pool's own profile."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from stowplan import CupyPool
from stowplan.errors import PoolError

from ...allocator.cupy_host import HostUpstream, cupy

from stowplan import CupyRecorder  # isort: skip (needs CuPy, and cupy_host skips where there is none)
from ...running import in_threads


class Teller:
    """Tell a recorder of events as CuPy's pool does."""

    def __init__(self, recorder: CupyRecorder) -> None:
        self.recorder = recorder

    def malloc(self, address: int, size: int, device: int = 0) -> None:
        event = {"device_id": device, "size": size, "mem_size": -(-size // 512) * 512}
        self.recorder.malloc_preprocess(**event)
        self.recorder.malloc_postprocess(**event, mem_ptr=address, pmem_id=1 if address else 0)

    def free(self, address: int, device: int = 0) -> None:
        event = {"device_id": device, "mem_size": 512, "mem_ptr": address, "pmem_id": 1}
        self.recorder.free_preprocess(**event)
        self.recorder.free_postprocess(**event)


@pytest.fixture
def recorder() -> CupyRecorder:
    return CupyRecorder()


@pytest.fixture
def tell(recorder: CupyRecorder) -> Teller:
    return Teller(recorder)


def test_an_address_that_comes_again_was_freed_elsewhere(recorder: CupyRecorder, tell: Teller) -> None:
    for _ in range(2):
        with recorder.step():
            tell.malloc(512, 1)
            tell.malloc(512, 2)
            tell.malloc(1024, 3)
            tell.free(1024)
    profile = recorder.profile()
    assert profile.end[0] < profile.start[1]
    assert profile.wrapped.tolist() == [False, True, False]


def test_an_empty_block_ends_at_once_and_what_could_not_be_had_is_none(
    recorder: CupyRecorder, tell: Teller
) -> None:
    for _ in range(2):
        with recorder.step():
            tell.malloc(0, 0)  # an empty one: CuPy tells of no end
            tell.malloc(512, 5)
            tell.malloc(0, 10**15)  # one that could not be had
            tell.malloc(0, 0)
            tell.free(512)
    profile = recorder.profile()
    assert profile.size.tolist() == [0, 5, 0]
    assert (profile.end - profile.start).tolist() == [1, 3, 1]


def test_one_device_of_several(tell: Teller) -> None:
    recorder = CupyRecorder(device=1)
    tell.recorder = recorder
    for _ in range(2):
        with recorder.step():
            tell.malloc(512, 1, device=0)
            tell.malloc(1024, 2, device=1)
            tell.free(512, device=0)
            tell.free(1024, device=1)
    assert recorder.profile().size.tolist() == [2]


class Program:
    """A step with temporaries, a wrapped block, one that stays for good, and an empty one."""

    def __init__(self) -> None:
        self.gradient: Any = None
        self.kept: list[Any] = []

    def step(self) -> None:
        activation = cupy.empty(1000)
        self.gradient = None
        self.gradient = cupy.empty(7777, cupy.uint8)
        self.kept.append(cupy.empty(3))
        del activation
        for size in (10, 2000, 30_000):
            cupy.empty(size)


def test_recorder_and_pool_see_the_same_profile() -> None:
    pool, recorder, program = CupyPool(HostUpstream(), device=0), CupyRecorder(), Program()
    with cupy.cuda.using_allocator(pool.malloc), recorder:
        for _ in range(6):
            with recorder.step(), pool.step():
                program.step()
            pool.wait()
    assert pool.stats.replayed > 0
    profile = recorder.profile()
    assert profile.same_blocks(pool.profile())
    assert profile.alloc_ns.min() > 1_600_000_000 * 10**9
    assert (profile.wrapped.sum(), profile.escaped.sum()) == (1, 1)


def test_a_thread_s_blocks_only() -> None:
    pool, recorder = CupyPool(HostUpstream(), device=0), CupyRecorder()

    def elsewhere() -> None:
        with cupy.cuda.using_allocator(pool.malloc):
            cupy.empty(999)

    with cupy.cuda.using_allocator(pool.malloc), recorder:
        for _ in range(2):
            with recorder.step():
                cupy.empty(10, cupy.uint8)
                in_threads(elsewhere)
    assert recorder.profile().size.tolist() == [10]


def test_arrays_in_cycles_are_told_of_by_the_garbage_collector() -> None:
    pool, recorder = CupyPool(HostUpstream(), device=0), CupyRecorder()
    with cupy.cuda.using_allocator(pool.malloc), recorder:
        for _ in range(2):
            with recorder.step():
                ring: list[Any] = [cupy.empty(10, cupy.uint8)]
                ring.append(ring)
                del ring
                gc.collect()
                cupy.empty(20, cupy.uint8)
    profile = recorder.profile()
    assert profile.end[0] < profile.start[1]


def test_it_is_entered_again_and_beside_another_but_not_twice(recorder: CupyRecorder) -> None:
    with recorder:
        with pytest.raises(PoolError, match="entered already"):
            recorder.__enter__()
        with CupyRecorder():  # two at a time see the same
            pass
    with recorder:
        pass
    assert not cupy.cuda.memory_hook.get_memory_hooks()
