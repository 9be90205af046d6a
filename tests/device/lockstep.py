"""CuPy's real pool and its model, request by request: a memory hook drives the model with what the pool is asked for.

Among free chunks of one size CuPy takes the one that a Python set gives first. So the model is told which one that was,
by its address; all else it has to say itself: whether there is a free chunk, how large it is, where the block lies.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stowplan.insight.pool_models import CupyPoolModel
from stowplan.insight.pool_models.heap import Chunk


class FollowingModel(CupyPoolModel):
    """Takes, among free chunks of one size, the one that the real pool has taken.

    Attributes
    ----------
    address
        Where the real pool has placed the block that is asked for next.
    ties
        Number of requests with more than one chunk to choose from.
    """

    def __init__(self) -> None:
        super().__init__()
        self.address = 0
        self.ties = 0
        # By the identity of a reservation's first chunk, which stays the same.
        self._bases: dict[int, int] = {}

    def malloc(self, size: int) -> int:
        handle = super().malloc(size)
        served = self._live[handle]
        if served is not None:
            assert self._place(served[1], self.address) == self.address
        return handle

    def _best(self, size: int) -> Chunk | None:
        chunk = super()._best(size)
        if chunk is None:
            return None
        ties = self._heap.ties(chunk)
        self.ties += len(ties) > 1
        taken = [tie for tie in ties if self._place(tie) == self.address]
        assert len(taken) == 1, f"CuPy took none of the {len(ties)} chunks of {chunk.size} bytes"
        return taken[0]

    def _place(self, chunk: Chunk, new: int = 0) -> int:
        """Return a chunk's address; `new`: that of a reservation not seen before."""
        below = 0
        while chunk.before is not None:
            chunk = chunk.before
            below += chunk.size
        return self._bases.setdefault(id(chunk), new) + below


@contextmanager
def lockstep(cupy: Any) -> Iterator[Any]:
    """Serve from a new pool of CuPy's own, and compare it with its model after each allocation and free.

    Yields an object with the `model`, the `pool`, the number of `requests` compared, and `differences`: what differed
    first, for in a hook an assertion would be lost.
    """
    pool = cupy.cuda.MemoryPool()

    class Comparison(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "lockstep"

        def __init__(self) -> None:
            self.model, self.pool = FollowingModel(), pool
            self.requests = 0
            self.differences: list[str] = []
            self.handles: dict[int, int] = {}

        def malloc_postprocess(self, **told: int) -> None:
            if told["mem_ptr"]:
                self.model.stream, self.model.address = cupy.cuda.get_current_stream().ptr, told["mem_ptr"]
                self.compare(lambda: self.handles.update({told["mem_ptr"]: self.model.malloc(told["size"])}))

        def free_postprocess(self, **told: int) -> None:
            self.compare(lambda: self.model.free(self.handles.pop(told["mem_ptr"])))

        def compare(self, change: Any) -> None:
            if self.differences:
                return
            self.requests += 1
            try:
                change()
                found = (self.model.reserved, self.model.used, self.model.n_free_blocks)
                expected = (pool.total_bytes(), pool.used_bytes(), pool.n_free_blocks())
                assert found == expected, f"{found}, CuPy {expected}"
            except Exception as error:
                self.differences.append(f"request {self.requests}: {error!r}")

    gc.collect()
    gc.disable()  # it may free arrays within the hook, before the request that it is told of
    try:
        with cupy.cuda.using_allocator(pool.malloc), Comparison() as comparison:
            yield comparison
    finally:
        gc.enable()
