"""docs/glossary.rst and core_terms.rst: the names of the code that they mention exist. Sphinx checks their words."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_names_exist() -> None:
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("glossary.rst", "core_terms.rst"))
    names = re.findall(r"(?<!`)`(stowplan[\w.]+)`(?!`)", text)
    assert names
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
