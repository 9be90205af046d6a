"""PyTorch's caching allocator, as a model."""

from __future__ import annotations

from .heap import Chunk, ChunkPool, Heap, round_up

_KIB = 1024
_MIB = 1024 * _KIB


class PytorchPoolModel(ChunkPool):
    """PyTorch's ``CUDACachingAllocator`` on one stream with its default settings, without a device.

    Sizes are rounded up to 512 bytes. Requests of up to 1 MiB are served from *small* reservations, the others from
    *large* ones; the two never share memory. Either takes the smallest free chunk that is large enough (of equals the
    lowest address) and splits off the rest, in a large reservation only where more than 1 MiB remains. Without one,

    =========================  ====================
    request, rounded           is reserved
    =========================  ====================
    up to 1 MiB                2 MiB
    below 10 MiB               20 MiB
    10 MiB or more             itself, up to 2 MiB
    =========================  ====================

    and split in the same way. A freed chunk joins its free neighbours within the same reservation. Nothing is returned
    to the device while memory lasts.

    ``reserved`` is ``torch.cuda.memory_reserved()``, ``used`` ``torch.cuda.memory_allocated()``.

    Notes
    -----
    Source: PyTorch's "CUDA semantics, Memory management", and the comments and constants at the head of
    ``c10/cuda/CUDACachingAllocator.cpp`` (2.x). Where ``cudaMalloc`` puts a reservation decides between free chunks of
    equal size; the model puts each above the earlier ones.
    """

    SMALL = _MIB
    """Largest request that a small reservation serves."""
    SMALL_RESERVATION = 2 * _MIB
    LARGE_RESERVATION = 20 * _MIB
    OWN_RESERVATION_FROM = 10 * _MIB
    OWN_ROUNDING = 2 * _MIB

    def __init__(self) -> None:
        super().__init__()
        self._small, self._large = Heap(), Heap(keeps=self.SMALL)

    @property
    def heaps(self) -> tuple[Heap, ...]:
        """Of small requests, and of large ones."""
        return self._small, self._large

    def _heap_of(self, size: int) -> Heap:
        return self._small if size <= self.SMALL else self._large

    def _reservation(self, size: int) -> int:
        if size <= self.SMALL:
            return self.SMALL_RESERVATION
        if size < self.OWN_RESERVATION_FROM:
            return self.LARGE_RESERVATION
        return round_up(size, self.OWN_ROUNDING)


class PytorchExpandablePoolModel(PytorchPoolModel):
    """PyTorch's ``CUDACachingAllocator`` with ``expandable_segments:True``, on one stream, without a device.

    Like `PytorchPoolModel`, but small and large requests have one *segment* each, which grows at its end by pages of
    2 MiB (small) or 20 MiB (large)::

        [ used | free | used | free tail ] page | page | ... addresses without memory

    Every rest is split off. The tail counts as larger than any other free chunk, for it can grow: it is taken only
    where no other chunk is large enough. Where the tail is too small, the pages that it lacks are added to it.

    Notes
    -----
    Source: as for `PytorchPoolModel`, "Note [Expandable Segments]". Address space is never short, and pages are given
    back only where memory is: neither is modelled.
    """

    def __init__(self) -> None:
        super().__init__()
        self._small, self._large = _Segment(self.SMALL_RESERVATION), _Segment(self.LARGE_RESERVATION)

    def _reservation(self, size: int) -> int:
        return size


class _Segment(Heap):
    """One reservation that grows by pages; its last chunk is the tail."""

    def __init__(self, page: int) -> None:
        super().__init__()
        self._page = page

    def reserve(self, size: int) -> Chunk:
        free = self.tail.size if self.tail is not None and self.tail.free else 0
        chunk = self.release(super().reserve(round_up(size - free, self._page)))
        self.take(chunk)
        return chunk

    def split(self, chunk: Chunk, size: int) -> None:
        super().split(chunk, size)
        if chunk is self.tail and chunk.after is not None:
            self.tail = chunk.after

    def release(self, chunk: Chunk) -> Chunk:
        chunk = super().release(chunk)
        if chunk.after is None:
            self.tail = chunk
        return chunk
