"""Pools behind C functions keep to the contract of backends."""

from __future__ import annotations

from ..properties.native_backend import NativeBackend
from .backend import BackendContract


class TestNativePool(BackendContract):
    backend = NativeBackend
