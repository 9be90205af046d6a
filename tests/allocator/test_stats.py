"""How a pool's figures are shown: in Jupyter, behind a progress bar."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from stowplan.allocator import Stats

STATS = Stats(
    replayed=900,
    guests=60,
    upstream=40,
    reasons={"no_plan": 75, "mismatch": 25},
    smaller=3,
    missing=2,
    plans=2,
    reoptimizations=1,
    arena_bytes=3 << 20,
    kept_bytes=1 << 19,
    live_bytes=1 << 20,
    peak_live_bytes=2 << 20,
    reserved_bytes=4 << 20,
    peak_reserved_bytes=5 << 20,
    lower_bound=2 << 20,
)


def shown() -> tuple[list[list[str]], list[str]]:
    """Return the text of every row of the table in Jupyter, and how wide the parts of the bar are."""
    tree = ElementTree.fromstring(f"<div>{STATS._repr_html_().replace('&emsp;', '')}</div>")
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    return rows, re.findall(r"flex:(\d+)", STATS._repr_html_())


def test_jupyter_shows_how_requests_were_served() -> None:
    rows, widths = shown()
    assert widths == ["900", "60", "40"]
    assert rows[0] == ["■ served from the plan", "900", "90.00%"]
    assert ["no_plan", "75", ""] in rows
    assert ["arena", "3.0 MiB", "fragmentation 50.00%"] in rows


def test_names_are_escaped_and_nothing_is_divided_by_nothing() -> None:
    empty = replace(STATS, replayed=0, guests=0, upstream=0, lower_bound=0, reasons={"<script>": 0})
    assert "<script>" not in empty._repr_html_()
    assert empty.postfix()["planned"] == "0.0%"


def test_a_progress_bar_takes_the_postfix() -> None:
    assert STATS.postfix() == {"planned": "90.0%", "live": "1.0 MiB", "reserved": "4.0 MiB", "plans": "2"}
    text = io.StringIO()
    with pytest.importorskip("tqdm").tqdm(total=3, file=text) as progress:
        progress.set_postfix(STATS.postfix())
    assert "planned=90.0%, live=1.0 MiB" in text.getvalue()
