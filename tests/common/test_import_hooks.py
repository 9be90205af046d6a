"""`stowplan.common.import_hooks`: real imports of modules made for it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stowplan.common.import_hooks import once_imported

NAME = "module_that_nobody_else_has"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the module is."""
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield tmp_path / f"{NAME}.py"
    sys.modules.pop(NAME, None)
    assert sys.meta_path == before


def test_once_and_after_the_module_has_run(path: Path) -> None:
    path.write_text("answer = 42")
    seen = []
    once_imported(NAME, lambda: seen.append(sys.modules[NAME].answer))
    assert importlib.util.find_spec(NAME) is not None  # who only looks for it
    assert seen == []
    assert importlib.import_module(NAME).answer == 42
    assert seen == [42]
    importlib.reload(sys.modules[NAME])
    assert seen == [42]
    once_imported(NAME, lambda: seen.append("at once"))
    assert seen == [42, "at once"]


def test_a_module_that_fails_or_is_not_there(path: Path) -> None:
    seen: list[None] = []
    once_imported(NAME, lambda: seen.append(None))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)
    path.write_text("1 / 0")
    importlib.invalidate_caches()
    with pytest.raises(ZeroDivisionError):
        importlib.import_module(NAME)
    assert seen == []
    path.write_text("mended = True  # and of another length")
    importlib.import_module(NAME)
    assert len(seen) == 1


def test_nobody_is_told_afterwards(path: Path) -> None:
    path.write_text("")
    seen: list[None] = []
    leave = once_imported(NAME, lambda: seen.append(None))
    leave()
    importlib.import_module(NAME)
    assert seen == []
