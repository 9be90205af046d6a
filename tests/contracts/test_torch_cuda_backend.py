"""TorchCudaPool keeps to the contract of backends, over a simulated device."""

from __future__ import annotations

from ..properties.torch_cuda_backend import TorchCudaBackend
from .backend import BackendContract


class TestTorchCudaPool(BackendContract):
    backend = TorchCudaBackend
