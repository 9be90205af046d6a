"""RMM's pool, as a model."""

from __future__ import annotations

from .heap import ChunkPool, Heap


class RmmPoolModel(ChunkPool):
    """RMM's ``pool_memory_resource`` on one stream, without a device.

    Sizes are rounded up to 256 bytes. A request takes the smallest free chunk that is large enough (of equals the
    lowest address) and splits off the rest. Without one the pool reserves as much as it has already, at least what is
    requested: it doubles. A freed chunk joins its free neighbours within the same reservation. Nothing is returned to
    the device.

    ``reserved`` is RMM's ``pool_size()``.

    Parameters
    ----------
    initial
        Bytes reserved from the start, a multiple of 256. RMM's Python interface takes half of the device's free memory
        by default; a model that knows no device starts with none.

    Notes
    -----
    Source: RMM's guide, "Pool Memory Resource", and its ``pool_memory_resource`` and ``coalescing_free_list`` (26.08).
    A maximum size above the initial one, which changes the growth, is not modelled.
    """

    ROUNDING = 256
    GIVES_BACK = False

    def __init__(self, initial: int = 0) -> None:
        super().__init__()
        self._heap = Heap()
        if initial:
            self._heap.release(self._heap.reserve(initial))
            self._reserve(initial)

    @property
    def heaps(self) -> tuple[Heap, ...]:
        """The only one."""
        return (self._heap,)

    def _heap_of(self, size: int) -> Heap:
        return self._heap

    def _reservation(self, size: int) -> int:
        return max(size, self.reserved)
