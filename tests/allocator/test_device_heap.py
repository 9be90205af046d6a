"""The heap of a device over a simulated driver: small blocks in pages that they share, and the account."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.allocator._core import CudaPool, CudaPools, Scope

from .simulated_cuda import FUNCTIONS, SimulatedCuda
from .simulated_device import Stream

UNIT, PAGE = 512, 2 << 20
STEP = PAGE // 64
"""Sizes of small blocks are multiples of it."""
CELLS = PAGE // STEP
Operations = list[tuple[int, int]]


class HeapBlock:
    """A block that no plan serves; it is given back when it ends."""

    def __init__(self, heap: Heap, address: int, size: int) -> None:
        self.heap, self.address, self.size = heap, address, -(-size // UNIT) * UNIT

    def __del__(self) -> None:
        FUNCTIONS.stow_cupy_free(self.heap.pools.address, self.address, 0)


class Heap:
    """The heap of a pool without steps, over a simulated driver."""

    def __init__(self, limit: int = 0) -> None:
        self.cuda = SimulatedCuda()
        self.pools = CudaPools(Scope.thread, limit, self.cuda.address)
        self.pools.follow_stream(self.cuda.current_stream)
        self.pool = CudaPool(self.pools, 0)

    def take(self, size: int, stream: int = 0) -> HeapBlock | None:
        """Return a block; None where there is no memory for it."""
        self.cuda.now = stream
        address = FUNCTIONS.stow_cupy_malloc(self.pools.address, size, 0)
        return HeapBlock(self, address, size) if address else None

    def must_take(self, size: int, stream: int = 0) -> HeapBlock:
        """Return a block that there is memory for."""
        block = self.take(size, stream)
        assert block is not None
        return block

    @property
    def held(self) -> int:
        """Bytes held of the device."""
        held, peak = self.pool.reserved() or (0, 0)
        assert peak >= held
        return held

    def is_empty_when_trimmed(self) -> bool:
        self.pool.give_back()
        return (self.held, self.cuda.live_bytes, self.cuda.errors) == (0, 0, [])


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
    heap = Heap()
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
        block = heap.must_take(size * STEP)
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
    assert heap.is_empty_when_trimmed()


@settings(settings.get_profile("usual"))
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3 * PAGE)), max_size=40), st.integers(0, 2))
def test_blocks_are_apart_and_the_account_is_the_device_s(operations: Operations, pages: int) -> None:
    limit = pages * 8 * PAGE
    heap = Heap(limit)
    live: list[HeapBlock] = []
    for what, size in operations:
        if what <= 5:
            large = max(size, PAGE // 2 + 1)  # of its own range
            found = heap.take(large, what % 2)
            rounded = -(-large // UNIT) * UNIT
            if limit and sum(block.size for block in live) + rounded > limit:
                assert found is None
            if found is not None:
                begin, end = found.address, found.address + rounded
                assert all(end <= at.address or at.address + at.size <= begin for at in live)
                live.append(found)
            else:
                assert limit
            del found
        elif what <= 7 and live:
            live.pop(size % len(live))
        elif what == 8:
            heap.pool.settle()
        assert heap.held == heap.cuda.live_bytes
        assert not limit or heap.held <= limit + 2 * PAGE
    live.clear()
    assert heap.is_empty_when_trimmed()


def test_sizes_that_no_device_has_are_refused() -> None:
    heap = Heap()
    cuda = heap.cuda
    for size in (1 << 60, (1 << 60) + 1, 1 << 62, (1 << 63) - 1):
        cuda.fails = lambda name, size: size > 1 << 40
        assert heap.take(size) is None
    assert (heap.held, cuda.errors) == (0, [])


def test_what_a_stream_has_freed_is_another_s_once_its_event_is_over() -> None:
    heap = Heap()
    cuda = heap.cuda
    first = heap.must_take(PAGE, 1)
    address = first.address
    Used(cuda, first, 1)
    del first
    assert heap.must_take(PAGE, 1).address == address  # its own at once
    other = heap.must_take(PAGE, 2)
    assert other.address != address  # not waited for
    cuda.device.synchronize()
    assert heap.must_take(PAGE, 2).address in (address, other.address)
    assert not cuda.errors


def test_a_stream_waits_for_another_one_where_a_limit_allows_no_more() -> None:
    heap = Heap(PAGE)
    cuda = heap.cuda
    first = heap.must_take(PAGE, 1)
    Used(cuda, first, 1)
    del first
    second = heap.must_take(PAGE, 2)
    Used(cuda, second, 2)  # it comes after the first
    assert "stream_wait_event" in cuda.calls
    assert "event_synchronize" not in cuda.calls
    assert not cuda.errors
