"""Stubs that the build makes of the Cython modules: what a source says, and nothing that an extension has not."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path.relative_to(ROOT) for room in ROOT.iterdir() for path in room.glob("_*.pyx"))
PART = """
@cython.final
cdef class Block(Region):
    cdef int64_t hidden
    cdef readonly size_t size  # bytes
    cdef public object told  # of its end  #: Callable[[int], object] | None
    #: def __buffer__(self, flags: int, /) -> memoryview: ...

    def __cinit__(
        self, int64_t size, Region parent=None, *, names: Sequence[str] = (), Scope scope=Scope.thread,
        cbool may_wait=True,
    ):  # no docstring
        pass

    def __dealloc__(self):
        pass

    @property
    def range(self) -> tuple[int, int]:
        return 0, 1


def outer(Region one or None, object two, *args: Any):
    def inner(x):
        return x
"""
STUB = """# From module.pyx, by tools/stubs.py.
from typing import Any
class Block(Region):
    ...
    size: int
    told: Callable[[int], object] | None
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __init__(self, size: int, parent: Region | None = None, *, names: Sequence[str] = (), scope: Scope = ..., \
may_wait: bool = True) -> None: ...
    @property
    def range(self) -> tuple[int, int]: ...
def outer(one: Region | None, two: object, *args: Any) -> None: ...
"""


@pytest.fixture(scope="module")
def make_stub() -> Callable[[Path], None]:
    made: Callable[[Path], None] = runpy.run_path(str(ROOT / "tools" / "stubs.py"))["make_stub"]
    return made


def test_a_stub_says_what_the_source_says(tmp_path: Path, make_stub: Callable[[Path], None]) -> None:
    (tmp_path / "module.pyx").write_text('#: from typing import Any\ninclude "part.pxi"\n')
    (tmp_path / "part.pxi").write_text(PART)
    make_stub(tmp_path / "module.pyx")
    assert (tmp_path / "module.pyi").read_text() == STUB


@pytest.mark.parametrize(
    "line", ["def f(x):", "def f(x=None):", "cdef class A:\n    cdef readonly list names  # of all"]
)
def test_what_has_no_type_is_refused(line: str, tmp_path: Path, make_stub: Callable[[Path], None]) -> None:
    (tmp_path / "module.pyx").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"module\.pyx: .*: expected a type"):
        make_stub(tmp_path / "module.pyx")


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_an_extension_has_all_that_its_stub_has(source: Path) -> None:
    """The stubs are those that the installation has made."""
    module = import_module(f"stowplan.{source.parent.name}.{source.stem}")
    stub = ast.parse((ROOT / source).with_suffix(".pyi").read_text())
    classes = [node for node in stub.body if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in stub.body if isinstance(node, ast.FunctionDef)]
    assert classes or functions
    for name in functions:
        assert callable(getattr(module, name))
    for node in classes:
        public = getattr(module, node.name)
        # What a comment says of a class may be that of those below it.
        below = [public, *public.__subclasses__()]
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and part.name != "__buffer__":
                assert any(hasattr(one, part.name) for one in below), (node.name, part.name)
