"""These tests need a device, or the simulated one (``make device-test``); elsewhere each of them skips and says why."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def cupy() -> Iterator[Any]:
    """CuPy on a device; its allocator is put back afterwards."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed; expected: pip install 'stowplan[cupy]'")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no CUDA device: {error}")
    if count == 0:
        pytest.skip("no CUDA device: the driver knows none")
    gc.collect()  # a dead pool of an earlier test would give back its memory in the middle of this one
    before = cupy.cuda.get_allocator()
    yield cupy
    cupy.cuda.set_allocator(before)
    cupy.cuda.Device().synchronize()


@pytest.fixture
def nvidia(cupy: Any) -> None:
    """Skip a test of what CuPy has for NVIDIA's devices only."""
    if cupy.cuda.runtime.is_hip:
        pytest.skip("CuPy for ROCm does not have this: needs a device of NVIDIA's")


@pytest.fixture
def chainer(chainer_on_cuda: Any) -> Any:
    """Chainer on a device."""
    return chainer_on_cuda
