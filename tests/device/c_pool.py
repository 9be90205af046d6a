"""`TorchCudaPool` as CuPy's allocator: its C functions over HIP's runtime, without PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

from stowplan.allocator.backends.torch_cuda_pool import TorchCudaPool


class CPool(TorchCudaPool):
    """The pool on the simulated device, with the names that `CupyPool` has; steps are threads'."""

    def __init__(self, **options: Any) -> None:
        super().__init__(scope="thread", **options)

    @property
    def malloc(self) -> Callable[[int], Any]:
        """The allocator for CuPy."""
        return self.cupy_malloc

    def free_all_blocks(self) -> None:
        """Give back all that nothing lives in."""
        self.free_all()

    def _table(self) -> int:
        return 0  # HIP's functions, which CuPy has loaded

    def _current_device(self) -> int:
        return int(cupy.cuda.device.get_device_id())

    def _backend(self) -> str:
        return "torch: simulated"
