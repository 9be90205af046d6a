"""The process in which `malloc.py` replays requests: int64 numbers in and out. It imports next to nothing.

Its own blocks, which malloc serves as well, are left out: what is in use before the first request is subtracted.
"""

from __future__ import annotations

import ctypes
import sys
from array import array

_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def main() -> None:
    """Replay, and write: steps, whether what is mapped has stopped growing, most alive; by event, most mapped."""
    library = ctypes.CDLL(None)
    info, malloc, free = library.mallinfo2, library.malloc, library.free
    info.restype, info.argtypes = _MallInfo, []
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]

    numbers = array("q", sys.stdin.buffer.read())
    (most, enough, events, blocks), rest = numbers[:4], numbers[4:]
    block, allocate, size = rest[:events], rest[events : 2 * events], rest[2 * events :]
    held, mapped = array("Q", bytes(8 * blocks)), array("q", bytes(8 * events))
    library.malloc_trim(0)
    start = info()
    own = start.uordblks + start.hblkhd
    steps = unchanged = live = most_live = 0
    while steps < most and unchanged < enough:
        before = max(mapped, default=0)
        for k, (i, wanted) in enumerate(zip(block, allocate, strict=True)):
            if wanted:
                held[i] = malloc(max(size[i], 1))
                live += size[i]
                most_live = max(most_live, live)
            elif held[i]:
                free(held[i])
                held[i] = 0
                live -= size[i]
            now = info()
            mapped[k] = max(mapped[k], now.arena + now.hblkhd - own)
        steps += 1
        unchanged = unchanged + 1 if max(mapped, default=0) == before else 0
    sys.stdout.buffer.write(array("q", [steps, unchanged > 0, most_live]).tobytes() + mapped.tobytes())


if __name__ == "__main__":
    main()
