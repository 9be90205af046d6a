"""Small blocks of one stream, in pages that they share.

CUDA serves requests of up to half a page (2 MiB) from pages that they share, and a page stays while one block of it
lives. To hold free blocks for later requests is to hold their pages, and what is made in their places keeps them. So
small blocks are cut from pages here, each from the first place that has room: what lives long gathers in the first
pages, and the last ones go.

    page    | block | hole | block | block |           |        holes: offset -> bytes

O(pages) for a request that finds no room, less for others; O(holes of a page) to look for a place in it.
"""

from __future__ import annotations

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

    __slots__ = ("_holes", "_largest", "memory", "used")

    def __init__(self, memory: Any, size: int) -> None:
        self.memory = memory
        self.used = 0
        self._holes = {0: size}  # no two of them touch
        self._largest = size  # no hole is larger

    def take(self, size: int) -> int | None:
        """Return the offset of `size` bytes that were free, the first ones; None where there is no room."""
        if size > self._largest:
            return None
        offset = min((begin for begin, room in self._holes.items() if room >= size), default=None)
        if offset is None:
            self._largest = max(self._holes.values(), default=0)
            return None
        room = self._holes.pop(offset)
        if room > size:
            self._holes[offset + size] = room - size
        self.used += size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Take `size` bytes back."""
        self.used -= size
        end = offset + size
        for begin, room in list(self._holes.items()):
            if begin + room == offset or begin == end:
                del self._holes[begin]
                offset, end = min(begin, offset), max(begin + room, end)
        self._holes[offset] = end - offset
        self._largest = max(self._largest, end - offset)


class Pages:
    """The pages of one stream, in the order in which they came."""

    def __init__(self) -> None:
        self._pages: list[Page] = []

    def take(self, size: int) -> tuple[Page, int] | None:
        """Return a page and the offset of `size` bytes in it that were free; None where no page has room."""
        for page in self._pages:
            if (offset := page.take(size)) is not None:
                return page, offset
        return None

    def add(self, page: Page) -> None:
        """Add a page."""
        self._pages.append(page)

    def give(self, page: Page, offset: int, size: int) -> bool:
        """Take `size` bytes back; return whether nothing is left in the page, which is the caller's then."""
        page.give(offset, size)
        if page.used == 0:
            self._pages.remove(page)
        return page.used == 0
