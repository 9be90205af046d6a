"""Streams: no address passes from one to another without an ordering, whatever they do; see simulated_device."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stowplan import CupyPool
from stowplan.errors import PoolError

from ..children import end_quietly
from ..running import in_threads, run
from .cupy_host import HostUpstream, address, cupy
from .simulated_device import CaptureError, RaceError, Stream
from .simulated_pool import COPY, MAIN, OTHER, SimulatedPool


@pytest.fixture
def pool() -> Iterator[SimulatedPool]:
    pool = SimulatedPool(warmup=0)
    yield pool
    gc.collect()
    assert not pool.memory.races


@contextmanager
def all_replayed(pool: SimulatedPool) -> Iterator[None]:
    before, requests = pool.stats, pool.memory.requests
    yield
    assert pool.stats.reasons == before.reasons
    assert pool.stats.replayed > before.replayed
    assert pool.memory.requests == requests


# ------------------------------------------------------------------------------------------------ a lane per stream


def test_every_thread_s_own_stream_has_cuda_s_name_in_profiles(pool: SimulatedPool) -> None:
    own = Stream(2)
    run(pool, 4, lambda: pool.empty(3000, own))
    assert pool.stats.replayed > 0
    assert pool.profile().stream.tolist() == [2]


def test_a_step_on_two_streams_is_replayed_in_full(pool: SimulatedPool) -> None:
    seen: dict[Stream, set[int]] = {MAIN: set(), COPY: set()}

    def work() -> None:
        for i in range(5):
            batch = pool.empty(3000 + i, COPY)
            seen[COPY].add(address(batch))
            result = pool.empty(5000, MAIN)
            seen[MAIN].add(address(result))
            del batch

    run(pool, 6, work)
    seen = {MAIN: set(), COPY: set()}
    with all_replayed(pool):
        run(pool, 5, work)
    assert not seen[MAIN] & seen[COPY]
    stats = pool.stats
    assert stats.plans == 2
    assert stats.reasons["stream"] == 5  # the copy stream has a lane from the second step on
    assert stats.arena_bytes == stats.lower_bound == pool.memory.live_bytes


def test_loaded_plans_serve_each_stream(pool: SimulatedPool, tmp_path: Any) -> None:
    def work(pool: SimulatedPool, copy: Stream) -> None:
        pool.empty(1000)
        pool.empty(3000, copy)

    run(pool, 6, lambda: work(pool, COPY))
    pool.save(tmp_path / "plans")
    loaded = SimulatedPool.load(tmp_path / "plans")
    with all_replayed(loaded):
        run(loaded, 2, lambda: work(loaded, OTHER))  # another run of the program: another address


def test_the_per_thread_stream_is_another_in_each_thread(pool: SimulatedPool) -> None:
    places: list[tuple[int, int]] = []

    def work() -> None:
        array = pool.empty(5000, Stream(2), use=False)
        places.append((threading.get_ident(), address(array)))

    for _ in range(2):
        in_threads(lambda: run(pool, 12, work))
        run(pool, 12, work)
    mine = {at for thread, at in places if thread == threading.get_ident()}
    assert pool.stats.replayed > 0
    assert len(mine) < 12


# -------------------------------------------------------------------------------------------------- record_stream


def lend(pool: SimulatedPool, *streams: Stream, own: Stream = MAIN, say: bool = True) -> None:
    """Make a block that other streams read last, and say so to the pool; then it goes."""
    batch = pool.empty(4000, own)
    for stream in streams:
        pool.simulated.follow(stream, pool.simulated.event(own))
        pool.simulated.use(batch, stream)
        if say:
            pool.record_stream(batch, stream)


def used_on_copy(pool: SimulatedPool) -> None:
    """A block of the main stream's that the copy stream reads last, and one that takes its place."""
    lend(pool, COPY)
    pool.empty(4000)


def test_a_successor_waits_for_the_streams_of_its_place(pool: SimulatedPool) -> None:
    run(pool, 6, lambda: used_on_copy(pool))
    assert pool.stats.arena_bytes == 4096  # one place for both
    pool.simulated.calls.clear()
    with all_replayed(pool):
        run(pool, 3, lambda: used_on_copy(pool))
    assert pool.simulated.calls.count("wait") == 3
    assert "synchronize" not in pool.simulated.calls  # nobody waits but the stream


def test_without_the_wait_the_books_find_the_race(pool: SimulatedPool) -> None:
    run(pool, 6, lambda: used_on_copy(pool))
    pool.simulated.ordering = False
    with pytest.raises(RaceError):
        run(pool, 1, lambda: used_on_copy(pool))


def test_nobody_waits_for_what_is_done(pool: SimulatedPool) -> None:
    run(pool, 6, lambda: lend(pool, COPY))
    pool.simulated.run_all()
    pool.simulated.calls.clear()
    with all_replayed(pool):
        run(pool, 1, lambda: lend(pool, COPY))
    assert "wait" not in pool.simulated.calls  # it was seen done when the step began


def test_upstream_has_a_block_back_when_the_other_stream_is_done(pool: SimulatedPool) -> None:
    array = pool.empty(5000)
    pool.simulated.follow(COPY, pool.simulated.event(MAIN))
    pool.simulated.use(array, COPY)
    pool.record_stream(array[10:20], COPY)  # a view will do
    pool.record_stream(array, COPY)
    del array
    assert pool.stats.live_bytes == 0
    assert pool.memory.live_bytes == pool.stats.reserved_bytes == 5000
    pool.empty(100)
    assert pool.memory.live_bytes == 5000
    pool.simulated.run_all()
    pool.empty(100)  # whoever asks upstream looks first
    assert pool.memory.live_bytes == pool.stats.reserved_bytes == 0


def test_a_block_of_two_other_streams_waits_for_both(pool: SimulatedPool) -> None:
    def work() -> None:
        lend(pool, COPY, OTHER)
        pool.empty(4000)

    run(pool, 6, work)
    pool.simulated.calls.clear()
    with all_replayed(pool):
        run(pool, 1, work)
    assert pool.simulated.calls.count("wait") == 2


def test_a_stream_without_events_costs_a_wait_for_the_device(pool: SimulatedPool) -> None:
    array = pool.empty(1000)
    pool.simulated.use(array, COPY)
    pool.record_stream(array, COPY)
    pool.cuda.fails = lambda name, size: name == "event_record"
    del array
    assert pool.simulated.calls == ["synchronize"]
    assert pool.memory.live_bytes == 0


def test_a_pool_that_is_dropped_waits_for_its_streams(pool: SimulatedPool) -> None:
    """Its arenas, and what it holds, go back to an upstream that knows of one stream each."""
    doomed = SimulatedPool(warmup=0)
    device, memory = doomed.simulated, doomed.memory
    run(doomed, 6, lambda pool=doomed: (pool.empty(3000), pool.empty(2000, COPY)))
    array = doomed.empty(5000)
    device.use(array, COPY)
    doomed.record_stream(array, COPY)
    del array, doomed
    gc.collect()
    assert memory.live_bytes == 0
    assert not memory.races


def test_interpreter_exit_with_held_blocks() -> None:
    end_quietly("""
from tests.allocator.test_streams import COPY, SimulatedPool
pool = SimulatedPool(warmup=0)
for i in range(6):
    with pool.step():
        first, second = pool.empty(5000), pool.empty(3000)
        pool.record_stream(first, COPY)
        pool.record_stream(second, COPY)
        del first
    pool.wait()
""")


def test_misuse_is_refused(pool: SimulatedPool) -> None:
    elsewhere = HostUpstream()
    with cupy.cuda.using_allocator(elsewhere):
        foreign = cupy.empty(10, cupy.uint8)
    with pytest.raises(PoolError, match="10 bytes is not this pool's"):
        pool.record_stream(foreign, COPY)
    with pytest.raises(PoolError, match="not this pool's"):
        pool.record_stream(SimulatedPool().empty(10), COPY)
    with pytest.raises(PoolError, match=r"expected one that all threads share"):
        pool.record_stream(pool.empty(10), Stream(2))


def test_without_a_driver_there_is_one_stream() -> None:
    upstream = HostUpstream()
    pool = CupyPool(upstream, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        array = cupy.empty(10, cupy.uint8)
    pool.record_stream(array, COPY)
    del array
    assert pool.stats.live_bytes == upstream.live_bytes == 0


# --------------------------------------------------------------------------------------------------------- capture


def test_a_replayed_step_can_be_captured(pool: SimulatedPool) -> None:
    """It asks upstream and the device for nothing, and its addresses are the same each time."""
    places: list[list[int]] = []

    def work() -> None:
        arrays = [pool.empty(size, COPY) for size in (3000, 700)]
        arrays.append(pool.empty(900, COPY))
        places.append([address(a) for a in arrays])

    pool.simulated.now = COPY.ptr
    run(pool, 6, work)
    pool.simulated.calls.clear()
    for captured in (None, COPY.ptr, None, COPY.ptr):
        pool.simulated.captured = captured
        with all_replayed(pool), pool.step():
            work()
    assert pool.simulated.calls == []
    assert places[-1] == places[-2] == places[-3] == places[-4]


@pytest.mark.parametrize("side_is_captured", [False, True])
def test_a_place_in_use_is_not_given_out_in_a_capture(pool: SimulatedPool, side_is_captured: bool) -> None:
    def work() -> None:
        lend(pool, OTHER, own=COPY)
        pool.empty(4000, COPY)

    pool.simulated.now = COPY.ptr
    run(pool, 6, work)
    pool.simulated.run_all()
    pool.wait()
    pool.simulated.captured = OTHER.ptr if side_is_captured else COPY.ptr
    pool.simulated.calls.clear()
    with pytest.raises(CaptureError), pool.step():  # upstream's, which is asked in its stead
        work()
    assert "wait" not in pool.simulated.calls
    pool.simulated.captured = None
    pool.simulated.run_all()
    run(pool, 3, work)
    with all_replayed(pool):
        run(pool, 3, work)


def test_no_lane_goes_to_another_stream_in_a_capture(pool: SimulatedPool) -> None:
    def work(stream: Stream) -> None:
        pool.empty(1000)
        pool.empty(3000, stream)

    run(pool, 6, lambda: work(COPY))
    for number in range(20):
        pool.simulated.captured = MAIN.ptr
        pool.simulated.calls.clear()
        with pool.step():
            assert "synchronize" not in pool.simulated.calls
            pool.simulated.captured = None
            work(Stream(100 + 8 * number))
    run(pool, 12, lambda: work(OTHER))
    assert "synchronize" in pool.simulated.calls
    with all_replayed(pool):
        run(pool, 3, lambda: work(OTHER))


def test_an_arena_that_cannot_go_in_a_capture_goes_after_it(pool: SimulatedPool) -> None:
    run(pool, 6, lambda: pool.empty(4000, COPY))
    arena_bytes = pool.stats.arena_bytes
    assert pool.memory.live_bytes == arena_bytes > 0
    pool.simulated.captured = COPY.ptr
    pool.free_all_blocks()
    assert pool.stats.arena_bytes == 0
    assert pool.memory.live_bytes == arena_bytes  # COPY may still be at work in it
    pool.simulated.captured = None
    pool.simulated.run_all()
    run(pool, 3, lambda: pool.empty(4000, COPY))
    assert pool.memory.live_bytes == pool.stats.arena_bytes == arena_bytes
    with all_replayed(pool):
        run(pool, 3, lambda: pool.empty(4000, COPY))
