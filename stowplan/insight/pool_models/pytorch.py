"""PyTorch's caching allocator, as a model."""

from __future__ import annotations

from .heap import Books, Chunk, Heap, round_up

_KIB = 1024
_MIB = 1024 * _KIB


class PytorchPoolModel(Books[tuple[Heap, Chunk]]):
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

    ROUNDING = 512
    SMALL = _MIB
    """Largest request that a small reservation serves."""
    SMALL_RESERVATION = 2 * _MIB
    LARGE_RESERVATION = 20 * _MIB
    OWN_RESERVATION_FROM = 10 * _MIB
    OWN_ROUNDING = 2 * _MIB

    def __init__(self) -> None:
        super().__init__()
        self._small, self._large = Heap(), Heap()

    def _serve(self, size: int) -> tuple[Heap, Chunk]:
        size = round_up(size, self.ROUNDING)
        heap = self._small if size <= self.SMALL else self._large
        chunk = heap.best(size)
        if chunk is None:
            chunk = heap.reserve(self._reservation(size))
            self._reserve(chunk.size)
        else:
            heap.take(chunk)
        if heap is self._small or chunk.size - size > self.SMALL:
            heap.split(chunk, size)
        self.used += chunk.size
        return heap, chunk

    def _reservation(self, size: int) -> int:
        if size <= self.SMALL:
            return self.SMALL_RESERVATION
        if size < self.OWN_RESERVATION_FROM:
            return self.LARGE_RESERVATION
        return round_up(size, self.OWN_ROUNDING)

    def _take_back(self, block: tuple[Heap, Chunk]) -> None:
        heap, chunk = block
        self.used -= chunk.size
        heap.release(chunk)


class PytorchExpandablePoolModel(Books[tuple["_Segment", Chunk]]):
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
        self._small = _Segment(PytorchPoolModel.SMALL_RESERVATION)
        self._large = _Segment(PytorchPoolModel.LARGE_RESERVATION)

    def _serve(self, size: int) -> tuple[_Segment, Chunk]:
        size = round_up(size, PytorchPoolModel.ROUNDING)
        segment = self._small if size <= PytorchPoolModel.SMALL else self._large
        chunk = segment.best(size, avoid=segment.last)
        if chunk is None:
            before = segment.size
            chunk = segment.grow(size)
            self._reserve(segment.size - before)
        segment.take(chunk)
        segment.split(chunk, size)
        self.used += size
        return segment, chunk

    def _take_back(self, block: tuple[_Segment, Chunk]) -> None:
        segment, chunk = block
        self.used -= chunk.size
        segment.release(chunk)


class _Segment(Heap):
    """One reservation that grows by pages; knows its last chunk."""

    def __init__(self, page: int) -> None:
        super().__init__()
        self.page = page
        self.size = 0
        self.last: Chunk | None = None

    def grow(self, size: int) -> Chunk:
        """Add the pages that the tail lacks to hold ``size`` bytes; returns the tail, which is free."""
        tail = self.last.size if self.last is not None and self.last.free else 0
        pages = round_up(size - tail, self.page)
        self.size += pages
        return self.release(self.reserve(pages, behind=self.last))

    def split(self, chunk: Chunk, size: int) -> None:
        super().split(chunk, size)
        if chunk is self.last and chunk.after is not None:
            self.last = chunk.after

    def release(self, chunk: Chunk) -> Chunk:
        chunk = super().release(chunk)
        if chunk.after is None:
            self.last = chunk
        return chunk
