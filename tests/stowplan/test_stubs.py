"""Stubs that the build makes of the Cython modules have nothing that an extension has not; mypy reads them."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path.relative_to(ROOT) for room in ROOT.iterdir() for path in room.glob("_*.pyx"))


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
