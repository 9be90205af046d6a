"""Arbitrary programs through the pools of a host and of a simulated device, whose memory fails at times."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from .native_backend import NativeBackend, UnmarkedNativeBackend
from .numpy_backend import NumpyBackend, UnmarkedNumpyBackend
from .pool_machine import PoolMachine

pytestmark = pytest.mark.no_cover

DEVICES = {
    "cupy_backend": ("CupyBackend", "UnmarkedCupyBackend"),
    "torch_cuda_backend": ("TorchCudaBackend", "ProcessTorchCudaBackend", "UnorderedTorchCudaBackend"),
}
"""The backends of each module of this folder, which skips without CuPy."""


def run(backend: Any, profile: str) -> None:
    machine: Any = type("Machine", (PoolMachine,), {"backend": backend})
    run_state_machine_as_test(
        machine, settings=settings(settings.get_profile(profile), stateful_step_count=60)
    )


@pytest.mark.parametrize(
    "backend", [NumpyBackend, UnmarkedNumpyBackend, NativeBackend, UnmarkedNativeBackend]
)
def test_programs_on_the_host(backend: Any) -> None:
    run(backend, "usual")


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in DEVICES for name in DEVICES[module]]
)
def test_programs_on_a_device(module: str, name: str) -> None:
    backend = getattr(import_module(f"..{module}", __name__), name)
    run(backend, "usual" if module == "cupy_backend" else "dear")
