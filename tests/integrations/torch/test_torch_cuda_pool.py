"""What a build of PyTorch for CPUs can tell of TorchCudaPool: refusals, and the exception of a request that fails."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from stowplan import TorchPool
from stowplan.allocator import _core
from stowplan.errors import PoolError
from stowplan.profiler.torch_library import compiler

from ...children import ROOT

HEADERS = [f"-I{path}" for room in ("allocator", "profiler") for path in sorted((ROOT / room).glob("**/"))]

CATCHER = r"""
#include <c10/util/Exception.h>
#include <cstring>
extern "C" int caught(void* (*malloc)(std::size_t, int, void*), std::size_t size, char* text) {
  try {
    malloc(size, 0, nullptr);
  } catch (const c10::OutOfMemoryError& error) {
    std::strncpy(text, error.what_without_backtrace(), 1000);
    return 1;
  } catch (const std::exception& error) {
    std::strncpy(text, error.what(), 1000);
    return 2;
  }
  return 0;
}
"""

NO_MEMORY = r"""
#include <algorithm>
#include <cstddef>
#include "cuda_api.hpp"
using stowplan::allocator::CudaApi;
static int zero() { return 0; }
static CudaApi made() {
  CudaApi api;
  using Function = int (*)();
  auto* functions = reinterpret_cast<Function*>(&api);
  std::fill(functions, functions + offsetof(CudaApi, has_virtual_memory) / sizeof(Function), zero);
  api.push_context = nullptr;  // as of HIP
  api.get_error_string = nullptr;
  api.malloc = [](void**, std::size_t) { return 2; };
  api.device_attribute = [](int* value, int, int) { return *value = 0; };
  api.memory_info = [](std::size_t* free, std::size_t* total) { return *free = 5, *total = 10, 0; };
  api.stream_is_capturing = [](stowplan::allocator::CudaStream, int* status) { return *status = 0; };
  api.count_devices = [](int* count) { return *count = 1, 0; };
  api.get_device = [](int* device) { return *device = 0; };
  api.error_string = [](int) { return "simulated"; };
  return api;
}
extern "C" CudaApi table = made();
"""


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA")
def test_a_build_for_cpus_is_refused() -> None:
    with pytest.raises(PoolError, match="a build without CUDA"):
        TorchPool(device="cuda")


def test_installation_without_a_driver() -> None:
    if torch.version.cuda is None:
        pytest.skip(f"PyTorch {torch.__version__} is a build for CPUs: nothing can be installed in it")
    if torch.cuda.is_available():
        pytest.skip("there is a driver: tests/gpu has its tests")
    with pytest.raises(PoolError, match="no CUDA driver"):
        TorchPool(device="cuda").install()


def test_a_request_without_memory_is_pytorch_s_own_exception(tmp_path: Path) -> None:
    include = Path(torch.__file__).parent / "include"
    libraries = []
    for name, source in (("catcher", CATCHER), ("table", NO_MEMORY)):
        (tmp_path / f"{name}.cpp").write_text(source, encoding="utf-8")
        flags = ["-std=c++20", "-shared", "-fPIC", "-O0", f"-I{include}", *HEADERS]
        linked = [f"-L{include.parent / 'lib'}", "-lc10"] if name == "catcher" else []
        command = [
            *compiler(),
            *flags,
            str(tmp_path / f"{name}.cpp"),
            "-o",
            str(tmp_path / f"{name}.so"),
            *linked,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        libraries.append(ctypes.CDLL(str(tmp_path / f"{name}.so")))
    catcher, table = libraries
    address = ctypes.addressof(ctypes.c_void_p.in_dll(table, "table"))
    pools = _core.CudaPools(_core.Scope.process, 0, address)
    functions, text = ctypes.CDLL(_core.__file__), ctypes.create_string_buffer(1001)
    malloc = ctypes.cast(functions.stow_cuda_malloc, ctypes.c_void_p)
    assert catcher.caught(malloc, ctypes.c_size_t(1 << 20), text) == 2
    assert b"no pool is installed" in text.value
    pools.install()
    try:
        assert catcher.caught(malloc, ctypes.c_size_t(1 << 20), text) == 1
    finally:
        pools.take_back()
    assert text.value.startswith(b"CUDA out of memory. Tried to allocate 1,048,576 bytes on device 0")
    assert b"5 of 10 bytes free" in text.value
