"""Segments over a simulated driver: small blocks in pages that they share, and the account, beside plain references."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.allocator._core import Segment, Segments

from .simulated_cuda import OUT_OF_MEMORY, SimulatedCuda

UNIT = 512
CELLS = 32
PAGE = CELLS * UNIT
Operations = list[tuple[int, int]]


def segments() -> tuple[Segments, SimulatedCuda]:
    """Return segments in small pages, and the device that they come from."""
    cuda = SimulatedCuda()
    found = Segments(0, None, cuda.address)
    found.set_page(PAGE)
    return found, cuda


def take(pool: Segments, size: int, stream: int = 0) -> Segment:
    """Return a block that there is memory for."""
    block = pool.take(size, stream)
    assert isinstance(block, Segment)
    assert block.size == -(-size // UNIT) * UNIT
    return block


@settings(settings.get_profile("usual"))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, CELLS // 2)), max_size=80))
def test_a_small_block_gets_a_place_in_the_first_page_that_has_room(operations: Operations) -> None:
    pool, cuda = segments()
    cells: dict[int, list[bool]] = {}  # by a page's address, in the order in which pages came: taken or not
    live: list[tuple[int, int, int, Segment]] = []
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
        block = take(pool, size * UNIT)
        inside = [page for page in cells if page <= block.address < page + PAGE]
        page = inside[0] if inside else block.address
        at = (block.address - page) // UNIT
        if places:
            assert (page, at) in places
            assert page == places[0][0]
        else:
            assert not inside
            cells[page] = [False] * CELLS
        cells[page][at : at + size] = [True] * size
        live.append((page, at, size, block))
        assert pool.unused == UNIT * sum(not cell for taken in cells.values() for cell in taken)
    live.clear()
    block = None  # type: ignore[assignment]
    pool.trim()
    assert (pool.reserved()[0], pool.unused, cuda.live_bytes, cuda.errors) == (0, 0, 0, [])


@settings(settings.get_profile("usual"))
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3 * PAGE)), max_size=60), st.integers(0, 2))
def test_no_more_is_held_than_was_live_in_two_steps(operations: Operations, pages: int) -> None:
    """Live segments and arenas make the most; a free one is held as long as it fits below; the driver agrees."""
    pool, cuda = segments()
    pool.limit = limit = pages * 8 * PAGE
    live: list[Segment] = []
    most = before = arenas = 0

    def pages_of(block: Segment) -> int:
        return -(-block.size // PAGE) * PAGE

    for what, size in operations:
        if what <= 5:
            large = max(size, PAGE // 2 + 1)  # of its own segment
            found = pool.take(large, what % 2)
            rounded = -(-large // UNIT) * UNIT
            over = limit and sum(block.size for block in live) + arenas + rounded > limit
            assert isinstance(found, int) == bool(over)
            if isinstance(found, int):
                assert found == OUT_OF_MEMORY
            else:
                live.append(found)
            del found
        elif what <= 7 and live:
            live.pop(size % len(live))
        elif what == 8:
            pool.begin_step()
            before, most = most, sum(map(pages_of, live)) + arenas
            pool.make_room()
        else:
            arenas = size // PAGE * PAGE if not limit else 0
            pool.note_arenas(arenas)
        now = sum(map(pages_of, live)) + arenas
        most = max(most, now)
        held, peak = pool.reserved()
        assert held == cuda.live_bytes + arenas
        assert now <= held <= max(most, before, now)
        assert peak >= held
        assert pool.unused == sum(pages_of(block) - block.size for block in live)
    assert not cuda.errors


def test_the_driver_s_error_is_the_answer() -> None:
    pool, cuda = segments()
    cuda.fails = lambda name, size: name == "malloc"
    assert pool.take(PAGE, 0) == OUT_OF_MEMORY
    cuda.fails = lambda name, size: False
    block = take(pool, PAGE)
    assert (pool.reserved()[0], pool.free_segments) == (PAGE, 0)
    del block
    assert (pool.reserved()[0], pool.free_segments) == (PAGE, 1)  # it waits for a request of its size


def test_sizes_that_no_device_has_are_refused() -> None:
    pool, cuda = segments()
    for size in (1 << 60, (1 << 60) + 1, 1 << 62, (1 << 63) - 1):
        cuda.fails = lambda name, size: size > 1 << 40
        assert pool.take(size, 0) == OUT_OF_MEMORY
    assert (pool.reserved()[0], pool.unused, cuda.errors) == (0, 0, [])


def test_a_free_segment_serves_no_more_than_the_limit_allows() -> None:
    """Blocks of half a segment and a unit count as such; one of a whole segment as that."""
    pool, _ = segments()
    pool.limit = 4 * (PAGE + UNIT)
    blocks = [take(pool, PAGE + UNIT) for _ in range(4)]
    del blocks[:]
    whole = [pool.take(2 * PAGE, 0) for _ in range(3)]
    assert [isinstance(block, Segment) for block in whole] == [True, True, False]


def test_segments_go_back_without_those_that_are_freed_meanwhile() -> None:
    """A segment that is freed while streams are waited for may have work that the wait does not cover."""
    meanwhile: list[Segment] = []

    class Streams:
        def capturing(self) -> bool:
            meanwhile.clear()
            return False

    cuda = SimulatedCuda()
    pool = Segments(0, Streams(), cuda.address)
    pool.set_page(PAGE)
    meanwhile.append(take(pool, PAGE))
    del [take(pool, 3 * PAGE)][:]
    pool.trim()
    assert (pool.reserved()[0], pool.free_segments, cuda.live_bytes) == (PAGE, 1, PAGE)
    pool.trim()
    assert (pool.reserved()[0], cuda.live_bytes, cuda.errors) == (0, 0, [])
