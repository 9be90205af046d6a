"""These tests need a device, or the simulated one (``make device-test``); elsewhere each of them skips and says why."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
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
def chainer(chainer_on_cuda: Any) -> Iterator[Any]:
    """Chainer on a device, with settings under which it computes the same bits each time."""
    using = chainer_on_cuda.using_config
    with using("cudnn_deterministic", True), using("autotune", False), using("use_ideep", "never"):
        yield chainer_on_cuda


@pytest.fixture(params=["CupyPool", "compiled"])
def either(request: pytest.FixtureRequest) -> Any:
    """The pool's class: CupyPool, or the one that is PyTorch's, which CuPy asks by its C functions."""
    from stowplan import CupyPool

    if request.param == "CupyPool":
        return CupyPool
    from ..device.c_pool import CPool

    return CPool


@pytest.fixture
def calls() -> Callable[[], int]:
    """Return how many calls of the driver there were that take or give memory; skips on a device that counts none."""
    loaded = ctypes.CDLL(None)
    if not hasattr(loaded, "simhip_calls"):
        paths = {
            line.split()[-1]
            for line in Path("/proc/self/maps").read_text().splitlines()
            if "libamdhip64" in line
        }
        loaded = ctypes.CDLL(paths.pop()) if paths else loaded
    if not hasattr(loaded, "simhip_calls"):
        pytest.skip("the device does not count calls: expected the simulated one")
    names = ("Malloc", "Free", "MemCreate", "MemRelease", "MemMap", "MemUnmap", "MemSetAccess")
    return lambda: sum(loaded.simhip_calls(f"hip{name}".encode()) for name in names)
