"""A program's own kernels: barriers, shared memory, waves, templates, globals; and that each is compiled once."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .programs import run

SUMS = r"""
extern "C" __global__ void sums(const float* x, float* y, int n) {
  extern __shared__ float s[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int d = blockDim.x / 2; d; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (!t) y[blockIdx.x] = s[0];
}
"""
WAVES = r"""
extern "C" __global__ void waves(const int* x, int* y) {
  int v = x[threadIdx.x];
  for (int d = warpSize / 2; d; d /= 2) v += __shfl_down(v, d);
  if (threadIdx.x % warpSize == 0) y[threadIdx.x / warpSize] = v;
}
"""
TEMPLATES = """
template <class T> __global__ void doubled(T* x) { x[threadIdx.x] *= 2; }
__device__ int numbers[3] = {1, 2, 3};
"""
CXX = ("-std=c++17",)
"""CuPy 12 wants it said where a kernel is a template."""


def test_barriers_and_dynamic_shared_memory(cupy: Any) -> None:
    x, y = cupy.arange(1900, dtype="f"), cupy.empty(15, "f")
    cupy.RawKernel(SUMS, "sums")((15,), (128,), (x, y, 1900), shared_mem=512)
    expected = [np.arange(128 * i, min(128 * i + 128, 1900)).sum() for i in range(15)]
    assert y.get().tolist() == expected


@pytest.fixture
def lanes(cupy: Any) -> int:
    """Threads of a wave: 64 of HIP's, 32 of CUDA's."""
    return int(cupy.cuda.runtime.getDeviceProperties(0)["warpSize"])


def test_shuffles_of_a_wave(cupy: Any, lanes: int) -> None:
    y = cupy.empty(256 // lanes, "i")
    cupy.RawKernel(WAVES, "waves")((1,), (256,), (cupy.arange(256, dtype="i"), y))
    assert y.get().tolist() == np.arange(256).reshape(-1, lanes).sum(axis=1).tolist()


def test_templates_and_variables_of_a_module(cupy: Any) -> None:
    module = cupy.RawModule(code=TEMPLATES, options=CXX, name_expressions=["doubled<int>", "doubled<float>"])
    a, b = cupy.arange(10, dtype="i"), cupy.arange(10, dtype="f")
    module.get_function("doubled<int>")((1,), (10,), (a,))
    module.get_function("doubled<float>")((1,), (10,), (b,))
    assert a.get().tolist() == b.get().tolist() == list(range(0, 20, 2))
    numbers = cupy.ndarray(3, "i", module.get_global("numbers"))
    assert numbers.get().tolist() == [1, 2, 3]
    numbers += 1
    assert numbers.get().tolist() == [2, 3, 4]


def test_the_same_kernel_is_compiled_once(cupy: Any) -> None:
    """In this process and in others: whatever CuPy remembers, the compiler has it."""
    compiler = ctypes.CDLL("libhiprtc.so.7")
    compiler.simhip_compilations.restype = ctypes.c_ulonglong
    source = TEMPLATES + f"// {os.urandom(8).hex()}"

    def compilations(name: str) -> int:
        before = int(compiler.simhip_compilations())
        cupy.RawModule(code=source, options=CXX, name_expressions=[name]).get_function(name)
        return int(compiler.simhip_compilations()) - before

    found = [
        compilations(name) for name in ("doubled<int>", "doubled<int>", "doubled<float>", "doubled<int>")
    ]
    assert found == [1, 0, 1, 0]


PROGRAM = """
import ctypes, cupy
compiler = ctypes.CDLL("libhiprtc.so.7")
a = cupy.arange(1000.0)
code = "template <class T> __global__ void f(T* x) {}"
b = cupy.RawModule(code=code, options=("-std=c++17",), name_expressions=["f<int>"])
b.get_function("f<int>")
print(float((cupy.sqrt(a) + a ** 3).sum()), compiler.simhip_compilations())
"""


def test_a_second_run_of_a_program_compiles_nothing() -> None:
    first, second = run(PROGRAM), run(PROGRAM)
    assert first.stdout.split()[0] == second.stdout.split()[0]
    assert second.stdout.split()[1] == "0"


def test_a_kernel_of_other_headers_is_another(tmp_path: Path) -> None:
    """The toolchain's digest, of the headers and the compiler, is a part of a kernel's name."""
    home = Path(os.environ["SIMHIP_HOME"])
    for name in ("lib", "include", "bin", "flags"):
        (tmp_path / name).symlink_to(home / name)
    (tmp_path / "lib").unlink()
    (tmp_path / "lib").mkdir()
    for library in (home / "lib").iterdir():  # a library finds its folder by its own path
        os.link(library, tmp_path / "lib" / library.name)
    moved = {
        "LD_LIBRARY_PATH": str(tmp_path / "lib"),
        **dict.fromkeys(("ROCM_HOME", "CUDA_PATH"), str(tmp_path)),
        "CUPY_CACHE_IN_MEMORY": "1",
    }
    program = PROGRAM.replace("a = cupy", "a = 0 and cupy").replace("cupy.sqrt(a) + a ** 3", "cupy.arange(1)")

    def compilations(toolchain: str) -> int:
        (tmp_path / "toolchain").write_text(toolchain)
        return int(run(program, **moved).stdout.split()[1])

    first = compilations("one")
    assert first > 0
    assert [compilations("one"), compilations("two"), compilations("one")] == [0, first, 0]


def test_a_kernel_that_does_not_compile_shows_its_line(cupy: Any) -> None:
    kernel = cupy.RawKernel('extern "C" __global__ void k() {\n  no_such_function();\n}', "k")
    with pytest.raises(cupy.cuda.compiler.CompileException, match="no_such_function"):
        kernel((1,), (1,), ())
