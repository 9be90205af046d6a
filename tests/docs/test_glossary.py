"""docs/glossary.rst and core_terms.rst: the names of the code that they mention exist. Sphinx checks their words."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [(DOCS / name).read_text(encoding="utf-8") for name in ("glossary.rst", "core_terms.rst")]
GLOSSARY = "".join(PAGES)


def words() -> list[str]:
    return re.findall(r"^   (\S.*)$", GLOSSARY, re.MULTILINE)


def test_users_need_25_words() -> None:
    assert len(re.findall(r"^   (\S.*)$", PAGES[0], re.MULTILINE)) == 25


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
