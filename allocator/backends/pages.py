"""Small blocks of one stream, in pages that they share.

CUDA serves requests of up to half a page (2 MiB) from pages that they share, and a page stays while one block of it
lives. To hold free blocks for later requests is to hold their pages, and what is made in their places keeps them. So
small blocks are cut from pages here, each from the first page that has room: what lives long gathers in the first
pages, and the last ones go.

    page    | block | hole | block | block |           |        holes: offset -> bytes

O(pages that are not full, and holes of one) for a request, mostly much less; O(1) for a free, but O(pages that are not
full) where it leaves a page empty.
"""

from __future__ import annotations

import bisect
from typing import Any


class Page:
    """A page, and what is free in it.

    Parameters
    ----------
    memory
        A `cupy.cuda.Memory`.
    size
        Its bytes.
    """

    __slots__ = ("_begins", "_holes", "_largest", "memory", "number", "used")

    def __init__(self, memory: Any, size: int) -> None:
        self.memory = memory
        self.number = self.used = 0
        self._holes = {0: size}  # offset -> bytes; no two of them touch
        self._begins = {size: 0}  # the offset behind a hole -> its own
        self._largest = size  # no hole is larger

    @property
    def is_full(self) -> bool:
        """Whether nothing is free."""
        return not self._holes

    def take(self, size: int) -> int | None:
        """Return the offset of `size` bytes that were free; None where there is no room."""
        if size > self._largest:
            return None
        offset = next((begin for begin, room in self._holes.items() if room >= size), None)
        if offset is None:
            self._largest = max(self._holes.values(), default=0)
            return None
        room = self._holes.pop(offset)
        del self._begins[offset + room]
        if room > size:
            self._add(offset + size, offset + room)
        self.used += size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Take `size` bytes back."""
        self.used -= size
        end = offset + size
        if (before := self._begins.pop(offset, None)) is not None:
            del self._holes[before]
            offset = before
        if (behind := self._holes.pop(end, None)) is not None:
            del self._begins[end + behind]
            end += behind
        self._add(offset, end)
        self._largest = max(self._largest, end - offset)

    def _add(self, begin: int, end: int) -> None:
        self._holes[begin] = end - begin
        self._begins[end] = begin


class Pages:
    """The pages of one stream, in the order in which they came."""

    def __init__(self) -> None:
        self._open: list[Page] = []  # those that are not full
        self._came = 0

    def take(self, size: int) -> tuple[Page, int] | None:
        """Return a page and the offset of `size` bytes in it that were free; None where no page has room."""
        for index, page in enumerate(self._open):
            if (offset := page.take(size)) is not None:
                if page.is_full:
                    del self._open[index]
                return page, offset
        return None

    def add(self, page: Page) -> None:
        """Add a page."""
        page.number = self._came
        self._came += 1
        if not page.is_full:
            self._open.append(page)

    def give(self, page: Page, offset: int, size: int) -> bool:
        """Take `size` bytes back; return whether nothing is left in the page, which is the caller's then."""
        if page.is_full:
            bisect.insort(self._open, page, key=lambda one: one.number)
        page.give(offset, size)
        if page.used == 0:
            self._open.remove(page)
        return page.used == 0
