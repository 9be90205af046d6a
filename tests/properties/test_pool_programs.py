"""Arbitrary programs through pools whose steps are the process's: the other pools' are in the contract."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from .pool_machine import PoolMachine

BACKENDS = {
    "native_backend": ("ProcessNativeBackend",),
    "torch_cuda_backend": ("TorchCudaBackend", "ProcessTorchCudaBackend"),
}
"""By module of this folder, which may skip without CuPy."""


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in BACKENDS for name in BACKENDS[module]]
)
def test_programs(module: str, name: str) -> None:
    backend = getattr(import_module(f"..{module}", __name__), name)
    machine: Any = type("Machine", (PoolMachine,), {"backend": backend})
    run_state_machine_as_test(
        machine, settings=settings(settings.get_profile("dear"), stateful_step_count=60)
    )
