"""The quick tables of the papers are the committed ones, but for times."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import islice

import pytest

from ..children import ROOT

RESULTS = ROOT / "docs" / "results"
TIMED = re.compile(r"CPU|seconds|\ds$|^less \(44")
"""Columns that depend on the machine."""
SAME = {"sekiyama": None, "olla": 1, "pisarchyk_lee": None, "nntrainer": 3, "somas": 2}
"""Papers whose quick tables, the first so many, do not depend on it otherwise."""


def committed(name: str) -> dict[str, dict[str, dict[str, str]]]:
    """The tables of a paper in docs/results: title to row's title to column to cell."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for part in (RESULTS / f"papers_{name}.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, *lines = part.splitlines()
        rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")
        ]
        found[title] = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}
    return found


@pytest.mark.parametrize("name", SAME)
def test_quick_figures_are_those_of_the_committed_tables(name: str) -> None:
    pytest.importorskip("scipy", reason="SciPy is not installed; expected: pip install scipy")
    module, compared = import_module(f"experiments.papers.{name}"), 0
    for table in islice(module.tables(quick=True), SAME[name]):
        for row in table.rows:
            cells = dict(zip((column.strip() for column in table.columns), row, strict=True))
            there = committed(name)[table.title][row[0]]
            kept = {column for column in cells if not TIMED.search(column)}
            assert {column: there[column] for column in kept} == {
                column: cells[column].strip() for column in kept
            }
            compared += len(kept)
    assert compared > 5
