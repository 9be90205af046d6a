"""PyTorch's requests of CUDA memory over a simulated device, for pool_program."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

from ..allocator.simulated_cuda import SimulatedTorchCudaPool, Tensor
from .pool_program import Backend, make_pool


class TorchCudaBackend(Backend):
    """A TorchCudaPool, each thread with steps of its own."""

    options: ClassVar[dict[str, Any]] = {"scope": "thread"}

    def __init__(self, file: Path | None = None, **options: Any) -> None:
        self.failures = 0
        defaults = {"warmup": 0, "planning_share": math.inf, **self.options}
        self.pool = make_pool(SimulatedTorchCudaPool, file, **{**defaults, **options})
        self.pool.cuda.fails = self._fails

    def _fails(self, name: str, size: int) -> bool:
        if name != "malloc":
            return False
        self.failures -= 1
        return self.failures >= 0

    def allocate(self, size: int, zeroed: bool) -> Tensor:
        return Tensor(self.pool, size)

    def address(self, tensor: Tensor) -> int:
        return tensor.ptr

    def fail(self, times: int) -> bool:
        self.failures = 2 * times  # a request that finds no memory is made again
        return True

    def check(self) -> None:
        assert not self.pool.cuda.errors
        assert self.pool.cuda.live_bytes == self.pool.stats.reserved_bytes


class ProcessTorchCudaBackend(TorchCudaBackend):
    """Steps of the whole process: requests of all threads, in their order."""

    of_process = True
    options: ClassVar[dict[str, Any]] = {"scope": "process"}
