"""The library under PyTorch's CPU tensors: compiled once and kept, by racing processes too; what it asks and frees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stowplan.errors import MissingDependencyError
from stowplan.profiler import torch_library

from ...children import README_CODE, ROOT, printed

TABLE = """
import ctypes
import torch
from stowplan.profiler.torch_library import library

libc = ctypes.CDLL(None)
libc.aligned_alloc.restype = ctypes.c_void_p
libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
heard = []

def rounded(size):
    return -(-size // 64) * 64

@ctypes.CFUNCTYPE(POINTER, POINTER, SIZE)
def malloc(ctx, size):
    address = None if size >= 1 << 40 else libc.aligned_alloc(64, rounded(size))
    heard.append(("malloc", ctx, size, address))
    return address

@ctypes.CFUNCTYPE(POINTER, POINTER, SIZE, SIZE)
def calloc(ctx, count, size):
    address = libc.aligned_alloc(64, rounded(count * size))
    ctypes.memset(address, 0, count * size)
    heard.append(("calloc", ctx, count * size, address))
    return address

@ctypes.CFUNCTYPE(POINTER, POINTER, POINTER, SIZE)
def realloc(ctx, ptr, size):
    raise AssertionError("PyTorch has no realloc")

@ctypes.CFUNCTYPE(None, POINTER, POINTER, SIZE)
def free(ctx, ptr, size):
    heard.append(("free", ctx, size, ptr))
    libc.free(ptr)

class Table(ctypes.Structure):
    _fields_ = [("ctx", POINTER), ("malloc", type(malloc)), ("calloc", type(calloc)), ("realloc", type(realloc)),
                ("free", type(free))]

table = Table(7, malloc, calloc, realloc, free)
here = library()
"""


def run_with_table(program: str, cache: Path) -> None:
    """Run a program after `TABLE`. Python's functions do not live as long as the process, so it ends before they do."""
    printed("-c", f"{TABLE}{program}\nimport os\nos._exit(0)\n", XDG_CACHE_HOME=str(cache))


def kept(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


LOAD = "from stowplan.profiler.torch_library import library; print(library().installed)"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the library in it."""
    folder = tmp_path_factory.mktemp("cache")
    printed("-c", LOAD, XDG_CACHE_HOME=str(folder))
    return folder


def test_is_compiled_once_and_needs_no_compiler_then(cache: Path) -> None:
    (made,) = kept(cache)
    assert made.parent.name.startswith("torch-")
    assert made.name == "torch_cpu_allocator.so"
    before = made.stat()
    assert printed("-c", LOAD, XDG_CACHE_HOME=str(cache), CXX="/nowhere/c++", PATH="/nowhere") == "False\n"
    assert kept(cache) == [made]
    assert made.stat().st_mtime_ns == before.st_mtime_ns


def test_processes_may_race(tmp_path: Path) -> None:
    racing = [
        subprocess.Popen([sys.executable, "-c", LOAD], env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
        for _ in range(2)
    ]
    assert [process.wait(timeout=600) for process in racing] == [0, 0]
    assert len(kept(tmp_path)) == 1


def test_a_broken_library_is_made_again(cache: Path, tmp_path: Path) -> None:
    (made,) = kept(cache)
    broken = tmp_path / made.relative_to(cache)
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"not a library")
    assert printed("-c", LOAD, XDG_CACHE_HOME=str(tmp_path)) == "False\n"
    assert broken.stat().st_size == made.stat().st_size


def test_where_nothing_can_be_kept_it_is_compiled_apart(tmp_path: Path) -> None:
    in_the_way = tmp_path / "stowplan"
    in_the_way.write_text("a file")
    assert printed("-c", LOAD, XDG_CACHE_HOME=str(tmp_path), TMPDIR=str(tmp_path)) == "False\n"
    assert kept(tmp_path) == [in_the_way]


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "/nowhere/c++ -m64")
    with pytest.raises(MissingDependencyError, match=r"\$CXX, which is /nowhere/c\+\+"):
        torch_library.library()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match=r"c\+\+, g\+\+, clang\+\+.*apt install"):
        torch_library.library()
    assert kept(tmp_path) == []


def test_tensors_are_served_by_the_table_and_freed_there(cache: Path) -> None:
    program = """
before = torch.empty(1000)
here.install(ctypes.addressof(table))
here.install(ctypes.addressof(table))
assert here.installed
heard.clear()
tensor = torch.arange(300, dtype=torch.float64)
assert heard[-1] == ("malloc", 7, 2400, tensor.data_ptr()), heard
assert tensor.sum().item() == 44850
view = tensor[10:]
del tensor
assert ("free", 7, 2**64 - 1, view.data_ptr() - 80) not in heard
address = view.data_ptr() - 80
del view
assert heard[-1] == ("free", 7, 2**64 - 1, address)

heard.clear()
nothing = torch.empty(0)
assert nothing.data_ptr() == 0 and not heard
del nothing, before
assert not heard  # of before: freed where it came from

storage = torch.empty(10)
heard.clear()
storage.resize_(1000)
assert [(what, size) for what, _, size, _ in heard] == [("malloc", 4000), ("free", 2**64 - 1)]
lazy = torch._lazy_clone(storage.fill_(1))
lazy += 1
assert lazy.sum() == 2000 and storage.sum() == 1000

try:
    torch.empty(1 << 40, dtype=torch.uint8)
except torch.OutOfMemoryError as error:
    assert f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {1 << 40} bytes" in str(error)
else:
    raise AssertionError("no error")
"""
    run_with_table(program, cache)


def test_uninstalling_puts_the_former_allocator_back(cache: Path) -> None:
    program = """
assert not here.installed and not here.uninstall()
here.install(ctypes.addressof(table))
inside = torch.ones(1000)
assert here.uninstall() and not here.installed and not here.uninstall()
heard.clear()
outside = torch.ones(1000)
assert not heard
address = inside.data_ptr()
del inside
assert heard == [("free", 7, 2**64 - 1, address)]
heard.clear()
here.install(ctypes.addressof(table))
again = torch.ones(1000)
assert len(heard) == 1
del outside
assert len(heard) == 1

from stowplan.errors import PoolError
other = Table(8, malloc, calloc, realloc, free)
try:
    here.install(ctypes.addressof(other))
except PoolError as error:
    assert "one in a process" in str(error)
else:
    raise AssertionError("no error")
del again
assert {ctx for _, ctx, _, _ in heard} == {7}
here.uninstall()
"""
    run_with_table(program, cache)


def test_options_that_fill_new_memory_are_kept_to(cache: Path) -> None:
    program = """
import os
c10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
here.install(ctypes.addressof(table))
zero = ctypes.c_bool.in_dll(c10, "FLAGS_caffe2_cpu_allocator_do_zero_fill")
zero.value = True
zeros = torch.empty(5000, dtype=torch.uint8)
assert heard[-1][:3] == ("calloc", 7, 5000)
zero.value = False
assert not zeros.any()
ctypes.c_bool.in_dll(c10, "FLAGS_caffe2_cpu_allocator_do_junk_fill").value = True
assert (torch.empty(5000, dtype=torch.uint8) == 0x7f).all()
"""
    run_with_table(program, cache)


def test_the_tutorial_trains_within_a_budget() -> None:
    assert "run again in each step" in printed(ROOT / "docs" / "examples" / "torch_budget.py")


def test_the_readme_trains_within_a_budget() -> None:
    (code,) = [code for code in README_CODE if "torch" in code]
    peak, plain = re.findall(r"\d+", printed("-c", code))
    assert int(peak) <= 0.6 * int(plain)
