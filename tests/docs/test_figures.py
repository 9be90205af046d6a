"""Every figure in README and the users' pages is that of a table in docs/results that its section names, or rounds it.

A figure is a number with a decimal point, or one of 20 and more: as it stands in the table, in MiB of its bytes, in
percent, or what it leaves of the whole. Programs, links and years are left out.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "docs" / "results"
PAPERS = DOCS / "papers.rst"  # row by row
CONTRIBUTORS = {"papers", "architecture", "extending", "device", "pool_internals", "algorithms", "core_terms"}
PAGES = [ROOT / "README.md", *sorted(page for page in DOCS.glob("*.rst") if page.stem not in CONTRIBUTORS)]
NO_PROSE = re.compile(
    r"``+[^`]*``+|`[^`]*<http[^`]*`|\]\([^)]*\)|(?:::|:: (?:python|text|console))\n\n(?:(?:   .*)?\n)+"
)
FIGURE = re.compile(r"(?<![\w.,#-])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w.]*\w)")
SECTION = re.compile(r"\n(?=[^\n]+\n[-=~]{4,}\n)")
NOT_MEASURED = {
    "README.md": {"3.10", "3.13", "1.23"},
    "chainer.rst": {"3.12", "3.13"},
    "predict.rst": {"0.5", "1.1", "41"},  # 51 functions, ten of them with traps
    "processes.rst": {"70", "80", "65536"},
    "torch.rst": {"527"},  # test_every_operator.py
    "torch_budget.rst": {"2.11"},  # of PyTorch
    "which_allocator.rst": {"2.35"},
}
"""Versions, thresholds of other programs, and what stands in no table."""
NOT_IN_ROWS = {"0.001", "2,000"}
"""A tolerance, and tensors."""
TABLE = re.compile(r"\b(\w+)\.md\b")


def of_results(names: set[str]) -> set[float]:
    files = [RESULTS / f"{name}{suffix}" for name in names for suffix in (".md", ".csv")]
    texts = [path.read_text(encoding="utf-8") for path in files if path.exists()]
    thousands = [re.sub(r"(?<=\d),(?=\d{3}\b)", "", text) for text in texts]
    return {float(number) for text in texts + thousands for number in re.findall(r"\d+(?:\.\d+)?", text)}


def unknown(text: str, known: set[float], *, exact: bool = False) -> set[str]:
    """The figures of a text that no table has, nor a rounding of one; ``exact``: nor what it leaves of the whole."""
    found = set()
    for figure in FIGURE.finditer(NO_PROSE.sub("", text)) if known else ():
        digits, value = len(figure[2] or ".") - 1, float(figure[0].replace(",", ""))
        rest = () if exact else (1, -1)
        ways = ((one, 100 * one, *(sign * 100 * (1 - one) for sign in rest), one / 2**20) for one in known)
        if not digits and (value < 20 or 1990 < value < 2030):
            continue
        if not any(round(abs(way), digits) == value for each in ways for way in each):
            found.add(figure[0])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_figures_are_those_of_the_tables_that_a_page_names(page: Path) -> None:
    wrong = set()
    for section in SECTION.split(page.read_text(encoding="utf-8")):
        wrong |= unknown(section, of_results(set(TABLE.findall(section))))
    assert wrong <= NOT_MEASURED.get(page.name, set())


def rows_of_papers() -> list[list[str]]:
    """The rows of the tables of papers.rst: section, claim, the paper, here, reached, table."""
    rows = re.findall(
        r'^   (".*?)(?=\n   "|\n\n|\Z)', PAPERS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return list(csv.reader(" ".join(row.split()) for row in rows))


@pytest.mark.parametrize("row", rows_of_papers(), ids=lambda row: row[1][:40])
def test_what_a_row_of_the_papers_page_says_is_in_its_tables(row: list[str]) -> None:
    *_, here, reached, table = row
    assert reached in {"reached", "partly", "no", "cannot"}
    tables = of_results(set(TABLE.findall(table)))
    assert unknown(re.sub(r"ResNet-\d+", "", here), tables, exact=True) <= NOT_IN_ROWS


def test_the_papers_page_has_rows() -> None:
    assert len(rows_of_papers()) > 40
    assert {len(row) for row in rows_of_papers()} == {6}
