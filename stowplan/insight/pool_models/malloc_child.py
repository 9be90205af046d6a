"""The process in which `malloc.py` replays requests: int64 numbers in, one line out. It imports next to nothing.

Its own blocks, which malloc serves as well, are left out: what is in use before the first request is subtracted.
"""

from __future__ import annotations

import ctypes
import sys
from array import array

_FIELDS = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


class _MallInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def main() -> None:
    """Replay, and print: steps, whether what is mapped has stopped growing, the most mapped, the most alive."""
    library = ctypes.CDLL(None)
    info, malloc, free = library.mallinfo2, library.malloc, library.free
    info.restype, info.argtypes = _MallInfo, []
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]

    numbers = array("q", sys.stdin.buffer.read())
    most, enough, events, blocks = numbers[:4]
    block, allocate, size = (
        numbers[4 : 4 + events],
        numbers[4 + events : 4 + 2 * events],
        numbers[4 + 2 * events :],
    )
    held = array("Q", bytes(8 * blocks))
    library.malloc_trim(0)
    start = info()
    own = start.uordblks + start.hblkhd
    steps = unchanged = peak = live = most_live = 0
    while steps < most and unchanged < enough:
        before = peak
        for i, wanted in zip(block, allocate, strict=True):
            if wanted:
                held[i] = malloc(max(size[i], 1))
                live += size[i]
                most_live = max(most_live, live)
                now = info()
                peak = max(peak, now.arena + now.hblkhd - own)
            elif held[i]:
                free(held[i])
                held[i] = 0
                live -= size[i]
        steps += 1
        unchanged = unchanged + 1 if peak == before else 0
    print(steps, int(unchanged > 0), peak, most_live)


if __name__ == "__main__":
    main()
