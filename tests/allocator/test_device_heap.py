"""The heap of a device over a simulated driver: small blocks in pages that they share, and the account."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.allocator._core import CudaPool

from .simulated_cuda import SimulatedTorchCudaPool, Tensor
from .simulated_device import Stream

UNIT, PAGE = 512, 2 << 20
STEP = PAGE // 64
"""Sizes of small blocks are multiples of it."""
CELLS = PAGE // STEP
Operations = list[tuple[int, int]]


def rounded_up(block: Tensor) -> int:
    return -(-block.nbytes // UNIT) * UNIT


class Heap(SimulatedTorchCudaPool):
    """A pool without steps, over a simulated driver."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(limit=limit)
        self.pool = CudaPool(self._pools, 0)

    def take(self, size: int, stream: int = 0) -> Tensor | None:
        """Return a block; None where there is no memory for it."""
        try:
            return Tensor(self, size, stream)
        except MemoryError:
            return None

    def used(self, stream: int) -> Tensor:
        """Return a block of a page, which a kernel of its stream has used."""
        block = Tensor(self, PAGE, stream)
        self.cuda.device.admit(block)
        self.cuda.device.use(block, Stream(stream))
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


@settings(settings.get_profile("usual"))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, CELLS // 2)), max_size=80))
def test_a_small_block_gets_a_place_in_the_first_page_that_has_room(operations: Operations) -> None:
    heap = Heap()
    cells: dict[int, list[bool]] = {}  # by a page's address, in the order in which pages came: taken or not
    live: list[tuple[int, int, int, Tensor]] = []
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
        block = Tensor(heap, size * STEP)
        inside = [page for page in cells if page <= block.ptr < page + PAGE]
        page = inside[0] if inside else block.ptr
        at = (block.ptr - page) // STEP
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
    heap = Heap(limit or None)
    live: list[Tensor] = []
    for what, size in operations:
        if what <= 5:
            large = max(size, PAGE // 2 + 1)  # of its own range
            found = heap.take(large, what % 2)
            rounded = -(-large // UNIT) * UNIT
            if limit and sum(rounded_up(block) for block in live) + rounded > limit:
                assert found is None
            if found is not None:
                begin, end = found.ptr, found.ptr + rounded
                assert all(end <= at.ptr or at.ptr + rounded_up(at) <= begin for at in live)
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
    first = heap.used(1)
    address = first.ptr
    del first
    assert Tensor(heap, PAGE, 1).ptr == address  # its own at once
    other = Tensor(heap, PAGE, 2)
    assert other.ptr != address  # not waited for
    heap.cuda.device.synchronize()
    assert Tensor(heap, PAGE, 2).ptr in (address, other.ptr)
    assert not heap.cuda.errors


def test_a_stream_waits_for_another_one_where_a_limit_allows_no_more() -> None:
    heap = Heap(PAGE)
    heap.used(1)
    heap.used(2)  # it comes after the first
    assert "stream_wait_event" in heap.cuda.calls
    assert "event_synchronize" not in heap.cuda.calls
    assert not heap.cuda.errors
