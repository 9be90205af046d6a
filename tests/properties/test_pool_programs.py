"""Arbitrary programs through pools whose steps are the process's: the other pools' are in the contract."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from .pool_machine import PoolMachine


@pytest.mark.parametrize("name", ["native", "torch_cuda"])
def test_programs(name: str) -> None:
    module = import_module(f"..{name}_backend", __name__)  # which may skip without CuPy
    backend = getattr(module, f"Process{name.title().replace('_', '')}Backend")
    machine: Any = type("Machine", (PoolMachine,), {"backend": backend})
    run_state_machine_as_test(
        machine, settings=settings(settings.get_profile("dear"), stateful_step_count=60)
    )
