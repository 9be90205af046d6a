"""CuPy's memory pool, as a model."""

from __future__ import annotations

from .heap import Books, Chunk, Heap, round_up


class CupyPoolModel(Books[Chunk]):
    """CuPy's ``MemoryPool`` on one stream, without a device.

    Sizes are rounded up to 512 bytes. A request takes the smallest free chunk that is large enough and splits off
    the rest; without one, exactly its rounded size is reserved with ``cudaMalloc``. A freed chunk joins its free
    neighbours within the same reservation. Nothing is returned to the device.

    `reserved` is CuPy's ``total_bytes()``, `used` its ``used_bytes()``.

    Notes
    -----
    Source: CuPy's documentation of ``cupy.cuda.MemoryPool``, and its ``cupy/cuda/memory.pyx`` (12 to 14.2). Among free
    chunks of equal size CuPy's choice depends on addresses of Python objects; the model takes the one freed last.
    """

    GRANULARITY = 512

    def __init__(self) -> None:
        super().__init__()
        self._heap = Heap(last_freed_first=True)

    def _serve(self, size: int) -> Chunk:
        size = round_up(size, self.GRANULARITY)
        chunk = self._heap.best(size)
        if chunk is None:
            chunk = self._heap.reserve(size)
            self._reserve(size)
        else:
            self._heap.take(chunk)
            self._heap.split(chunk, size)
        self.used += size
        return chunk

    def _take_back(self, block: Chunk) -> None:
        self.used -= block.size
        self._heap.release(block)
