"""docs/glossary.rst: the names of the code that it mentions exist. Sphinx checks that it has every word referred to."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
GLOSSARY = (DOCS / "glossary.rst").read_text(encoding="utf-8")


def words() -> list[str]:
    return re.findall(r"^   (\S.*)$", GLOSSARY, re.MULTILINE)


def test_no_word_stands_twice() -> None:
    found = words()
    assert len(found) > 50
    assert len(set(found)) == len(found)


def test_names_exist() -> None:
    names = re.findall(r"(?<!`)`(stowplan[\w.]+)`(?!`)", GLOSSARY)
    assert names
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
