"""CuPy's memory pool, as a model."""

from __future__ import annotations

from collections.abc import Hashable

from .heap import ChunkPool, Heap


class CupyPoolModel(ChunkPool):
    """CuPy's ``MemoryPool``, without a device.

    Sizes are rounded up to 512 bytes. A request takes the smallest free chunk of its stream that is large enough and
    splits off the rest; without one, exactly its rounded size is reserved with ``cudaMalloc``. A freed chunk joins its
    free neighbours within the same reservation, and stays with the stream that reserved it. Nothing is returned to the
    device.

    ``reserved`` is CuPy's ``total_bytes()``, ``used`` its ``used_bytes()``.

    Attributes
    ----------
    stream
        The current stream, of the requests to come.

    Notes
    -----
    Source: CuPy's documentation of ``cupy.cuda.MemoryPool``, and its ``cupy/cuda/memory.pyx`` (12 to 14.2). Among free
    chunks of equal size CuPy's choice depends on addresses of Python objects; the model takes the one freed last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream: Hashable = 0
        self._heaps: dict[Hashable, Heap] = {}

    @property
    def n_free_blocks(self) -> int:
        """Number of free chunks, of all streams."""
        return sum(map(len, self._heaps.values()))

    @property
    def heaps(self) -> tuple[Heap, ...]:
        """Those of all streams."""
        return tuple(self._heaps.values())

    @property
    def _heap(self) -> Heap:
        """The current stream's."""
        return self._heaps.setdefault(self.stream, Heap(last_freed_first=True))

    def _heap_of(self, size: int) -> Heap:
        return self._heap
