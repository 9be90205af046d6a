"""The heap of a device over a simulated driver: small blocks in pages that they share, and the account."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.allocator._core import DeviceHeap, HeapBlock

from .simulated_cuda import OUT_OF_MEMORY, SimulatedCuda
from .simulated_device import Stream

UNIT, PAGE = 512, 2 << 20
STEP = PAGE // 64
"""Sizes of small blocks are multiples of it."""
CELLS = PAGE // STEP
Operations = list[tuple[int, int]]


def heap() -> tuple[DeviceHeap, SimulatedCuda]:
    """Return a heap, and the device that its memory comes from."""
    cuda = SimulatedCuda()
    return DeviceHeap(0, None, cuda.address), cuda


def take(pool: DeviceHeap, size: int, stream: int = 0) -> HeapBlock:
    """Return a block that there is memory for."""
    block = pool.take(size, stream)
    assert isinstance(block, HeapBlock)
    assert block.size == -(-size // UNIT) * UNIT
    return block


class Used:
    """A block as `SimulatedDevice` takes an array, which a kernel of a stream has used."""

    def __init__(self, cuda: SimulatedCuda, block: HeapBlock, stream: int) -> None:
        self.data = self.mem = self
        self.ptr, self.nbytes = block.address, block.size
        cuda.device.admit(self)
        cuda.device.use(self, Stream(stream))


@settings(settings.get_profile("usual"))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, CELLS // 2)), max_size=80))
def test_a_small_block_gets_a_place_in_the_first_page_that_has_room(operations: Operations) -> None:
    pool, cuda = heap()
    cells: dict[int, list[bool]] = {}  # by a page's address, in the order in which pages came: taken or not
    live: list[tuple[int, int, int, HeapBlock]] = []
    for what, size in operations:
        if what == 0 and live:
            page, at, count, block = live.pop(size % len(live))
            cells[page][at : at + count] = [False] * count
            if not any(cells[page]):
                del cells[page]
            del block
            continue
        places = [
            (page, at)
            for page, taken in cells.items()
            for at in range(CELLS - size + 1)
            if not any(taken[at : at + size])
        ]
        block = take(pool, size * STEP)
        inside = [page for page in cells if page <= block.address < page + PAGE]
        page = inside[0] if inside else block.address
        at = (block.address - page) // STEP
        if places:
            assert (page, at) in places
            assert page == places[0][0]
        else:
            assert not inside
            cells[page] = [False] * CELLS
        cells[page][at : at + size] = [True] * size
        live.append((page, at, size, block))
    live.clear()
    block = None  # type: ignore[assignment]
    pool.trim()
    assert (pool.reserved()[0], cuda.live_bytes, cuda.errors) == (0, 0, [])


@settings(settings.get_profile("usual"))
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3 * PAGE)), max_size=40), st.integers(0, 2))
def test_blocks_are_apart_and_the_account_is_the_device_s(operations: Operations, pages: int) -> None:
    pool, cuda = heap()
    pool.limit = limit = pages * 8 * PAGE
    live: list[HeapBlock] = []
    for what, size in operations:
        if what <= 5:
            large = max(size, PAGE // 2 + 1)  # of its own range
            found = pool.take(large, what % 2)
            rounded = -(-large // UNIT) * UNIT
            if limit and sum(block.size for block in live) + rounded > limit:
                assert found == OUT_OF_MEMORY
            if isinstance(found, HeapBlock):
                begin, end = found.address, found.address + rounded
                assert all(end <= at.address or at.address + at.size <= begin for at in live)
                live.append(found)
            else:
                assert limit
            del found
        elif what <= 7 and live:
            live.pop(size % len(live))
        elif what == 8:
            pool.begin_step()
            pool.make_room()
        held, peak = pool.reserved()
        assert held == cuda.live_bytes
        assert peak >= held
        assert not limit or held <= limit + 2 * PAGE
    live.clear()
    pool.trim()
    assert (pool.reserved()[0], cuda.live_bytes, cuda.errors) == (0, 0, [])


def test_the_driver_s_error_is_the_answer() -> None:
    pool, cuda = heap()
    cuda.fails = lambda name, size: name == "malloc"
    assert pool.take(PAGE, 0) == OUT_OF_MEMORY
    cuda.fails = lambda name, size: False
    block = take(pool, PAGE)
    assert (pool.reserved()[0], pool.free_ranges) == (PAGE, 0)
    del block
    assert (pool.reserved()[0], pool.free_ranges) == (PAGE, 1)


def test_sizes_that_no_device_has_are_refused() -> None:
    pool, cuda = heap()
    for size in (1 << 60, (1 << 60) + 1, 1 << 62, (1 << 63) - 1):
        cuda.fails = lambda name, size: size > 1 << 40
        assert pool.take(size, 0) == OUT_OF_MEMORY
    assert (pool.reserved()[0], cuda.errors) == (0, [])


def test_what_a_stream_has_freed_is_another_s_once_its_event_is_over() -> None:
    pool, cuda = heap()
    first = take(pool, PAGE, 1)
    address = first.address
    Used(cuda, first, 1)
    del first
    assert take(pool, PAGE, 1).address == address  # its own at once
    other = take(pool, PAGE, 2)
    assert other.address != address  # not waited for
    cuda.device.synchronize()
    assert take(pool, PAGE, 2).address in (address, other.address)
    assert not cuda.errors


def test_a_stream_waits_for_another_one_where_a_limit_allows_no_more() -> None:
    pool, cuda = heap()
    pool.limit = PAGE
    first = take(pool, PAGE, 1)
    Used(cuda, first, 1)
    del first
    second = take(pool, PAGE, 2)
    Used(cuda, second, 2)  # it comes after the first
    assert "stream_wait_event" in cuda.calls
    assert "event_synchronize" not in cuda.calls
    assert not cuda.errors


def test_a_stream_that_has_gone_is_not_asked() -> None:
    pool, cuda = heap()
    block = take(pool, PAGE, 1)
    pool.leave(1)
    recorded = cuda.calls.count("event_record")
    assert recorded == 1
    del block
    other = take(pool, PAGE, 1)  # another stream with its handle
    assert cuda.calls.count("event_record") == recorded
    del other
    pool.trim()
    assert (cuda.live_bytes, cuda.errors) == (0, [])
