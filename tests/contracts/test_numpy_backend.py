"""NumpyPool keeps to the contract of backends."""

from __future__ import annotations

from ..properties.numpy_backend import NumpyBackend
from .backend import BackendContract


class TestNumpyPool(BackendContract):
    backend = NumpyBackend
    test_arbitrary_programs = None  # tests/properties/test_numpy_pool_program.py runs more of them
