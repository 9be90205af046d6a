"""What the simulated device cannot do gets one clear error with what to do, and never a wrong answer."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from . import libraries
from .programs import run

ASSEMBLY = r"""
extern "C" __global__ void k(int* x) {
  // asm("in a comment"); is none
  asm volatile("nop");
}
"""
NEW_KERNEL = f"""
import cupy
cupy.RawKernel('extern "C" __global__ void k() {{}} // {os.urandom(8).hex()}', 'k')((1,), (1,), ())
"""


def test_inline_assembly_is_refused_with_its_line(cupy: Any) -> None:
    with pytest.raises(cupy.cuda.compiler.CompileException) as caught:
        cupy.RawKernel(ASSEMBLY, "k")((1,), (1,), (cupy.zeros(1, "i"),))
    assert "inline assembly, in line 4" in str(caught.value)
    assert "expected the same in C++" in str(caught.value)


def test_what_is_compiled_for_a_device_says_so(cupy: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="the simulated device does not have this"):
        cupy.sort(cupy.asarray([3, 1, 2]))
    said = capfd.readouterr().err
    expected = (
        "cannot run what was compiled for a device when its library was made"  # of HIP's thrust; of CUDA's:
    )
    assert expected in said or said == "simhip: cudaFuncGetAttributes is not simulated\n"


def test_a_kernel_for_hipcc_is_refused(cupy: Any) -> None:
    module = cupy.RawModule(code='extern "C" __global__ void k() {}', backend="nvcc")
    with pytest.raises(cupy.cuda.compiler.CompileException, match="expected a kernel without backend='nvcc'"):
        module.get_function("k")


def test_a_function_that_is_not_simulated_says_its_name_once() -> None:
    program = """
from cupy_backends.cuda.libs import cusparse
for _ in range(2):
    try:
        cusparse.create()
    except cusparse.CuSparseError as error:
        print(error)
"""
    done = run(program)
    assert re.fullmatch(r"simhip: (hip|cu)sparseCreate is not simulated\n", done.stderr)
    assert len(done.stdout.splitlines()) == 2


def test_a_kernel_without_a_compiler_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "hipcc").symlink_to(Path(os.environ["SIMHIP_HOME"]) / "bin" / "hipcc")
    for tool in ("sh", "uname", "ldconfig"):
        if found := next((p for p in ("/bin", "/usr/bin", "/sbin") if (Path(p) / tool).exists()), None):
            (tmp_path / tool).symlink_to(Path(found) / tool)
    done = run(NEW_KERNEL, fails=True, PATH=str(tmp_path))
    assert "kernels with g++, which cannot be started; install it" in done.stderr


def test_the_build_without_a_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMHIP_CXX", "/no/such/compiler")
    with pytest.raises(libraries.SetUpError, match="name another in SIMHIP_CXX"):
        libraries.compiler_version()


def test_another_cupy_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = libraries.wheel()
    monkeypatch.setattr(libraries, "WHEELS", {found.name: ("1.0.0", {})})
    with pytest.raises(
        libraries.SetUpError, match=f"for {found.name}==1.0.0: .* found {found.name} {found.version}"
    ):
        libraries.wheel()


def test_a_number_of_memory_that_is_none_is_refused() -> None:
    done = run("import cupy; cupy.zeros(1)", fails=True, SIMHIP_MEMORY="plenty")
    assert "SIMHIP_MEMORY=plenty is not a size" in done.stderr


def test_the_launcher_reports_in_one_line(tmp_path: Path) -> None:
    program = f"import runpy, sys; sys.argv = ['simulated']; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
    done = run(
        program + "runpy.run_module('tests.device.simulated', run_name='__main__')",
        fails=True,
        SIMHIP_CXX="no",
    )
    assert done.stderr.startswith("stowplan: the simulated device compiles kernels with no")
    assert len(done.stderr.splitlines()) == 1
