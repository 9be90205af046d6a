"""NumpyPool keeps to the contract of backends."""

from __future__ import annotations

from ..properties.numpy_backend import NumpyBackend
from .backend import BackendContract


class TestNumpyPool(BackendContract):
    backend = NumpyBackend
