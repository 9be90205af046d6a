"""These tests run CuPy on the simulated device; elsewhere each of them skips and says how to run it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

REASON = "needs CuPy on the simulated device: make device-test"


@pytest.fixture(autouse=True, scope="module")
def simulated() -> None:
    """Skip before a fixture of a whole module looks for the device."""
    if "SIMHIP_HOME" not in os.environ:
        pytest.skip(REASON)


@pytest.fixture(autouse=True)
def cupy(simulated: None) -> Iterator[Any]:
    """CuPy on the simulated device; its allocator and device are put back afterwards."""
    import cupy

    gc.collect()  # a dead pool of an earlier test would give back its memory in the middle of this one
    before = cupy.cuda.get_allocator()
    with cupy.cuda.Device(0):
        yield cupy
        cupy.cuda.set_allocator(before)
        cupy.cuda.Device().synchronize()
