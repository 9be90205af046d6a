"""The plainest pools, as models: one free list per size, and no pool."""

from __future__ import annotations

from collections import defaultdict

from .heap import Books


class FreeListsModel(Books[int]):
    """One free list per size: the pool of Chainer 1, without a device.

    Sizes are rounded up to 256 bytes. A request takes a freed block of exactly its rounded size; without one, that size
    is reserved. Blocks are neither split nor joined, and nothing is returned to the device: what is reserved is the sum
    over all sizes of the most blocks of that size alive at once.

    Notes
    -----
    Source: the memory pool of Chainer 1 and CuPy 1.0 (CuPy's ``cupy/cuda/memory.pyx``, v1.0.0), which later versions
    replaced by the one that `CupyPoolModel` follows.
    """

    def __init__(self) -> None:
        super().__init__()
        self._free: defaultdict[int, int] = defaultdict(int)  # by size, how many

    def _serve(self, size: int) -> int:
        if self._free[size]:
            self._free[size] -= 1
        else:
            self._reserve(size)
        self.used += size
        return size

    def _take_back(self, block: int) -> None:
        self.used -= block
        self._free[block] += 1


class NoPoolModel(Books[int]):
    """No pool: every request goes to the device (``cudaMalloc``), every free back to it (``cudaFree``).

    Sizes are rounded up to 256 bytes. What the driver itself keeps is not modelled.
    """

    def _serve(self, size: int) -> int:
        self._reserve(size)
        self.used += size
        return size

    def _take_back(self, block: int) -> None:
        self.used -= block
        self._reserve(-block)
