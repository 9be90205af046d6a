"""Small blocks in pages that they share, beside a plain Python reference."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.allocator.backends.pages import Page, Pages

SIZE = 32
Operations = list[tuple[int, int]]


@settings(settings.get_profile("cheap"))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, SIZE // 2)), max_size=80))
def test_a_block_gets_a_place_in_the_first_page_that_has_room(operations: Operations) -> None:
    pages, cells = Pages(), dict[Page, list[bool]]()  # each page, and which of its bytes are taken
    live: list[tuple[Page, int, int]] = []
    for what, size in operations:
        if what == 0 and live:
            page, offset, bytes_ = live.pop(size % len(live))
            cells[page][offset : offset + bytes_] = [False] * bytes_
            assert pages.give(page, offset, bytes_) == (not any(cells[page]))
            if page.used == 0:
                del cells[page]
            continue
        places = [
            (page, offset)
            for page, taken in cells.items()
            for offset in range(SIZE - size + 1)
            if not any(taken[offset : offset + size])
        ]
        found = pages.take(size)
        if found is None:
            assert not places
            page = Page(None, SIZE)
            found = page, page.take(size) or 0
            pages.add(page)
            cells[page] = [False] * SIZE
        else:
            assert found in places
            assert found[0] is places[0][0]
        cells[found[0]][found[1] : found[1] + size] = [True] * size
        live.append((*found, size))
        assert [page.used for page in cells] == [sum(taken) for taken in cells.values()]
