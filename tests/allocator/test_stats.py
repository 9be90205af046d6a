"""How a pool's figures are shown: in Jupyter, behind a progress bar."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

from stowplan.allocator import Stats
from stowplan.allocator.stats import COUNTS

MIB = 1 << 20
NOTHING = Stats(**{**dict.fromkeys(COUNTS, 0), "reasons": {"<script>": 0}})  # type: ignore[arg-type]
STATS = replace(
    NOTHING,
    replayed=900,
    guests=60,
    upstream=40,
    reasons={"no_plan": 75, "mismatch": 25},
    plans=2,
    arena_bytes=3 * MIB,
    lower_bound=2 * MIB,
    live_bytes=MIB,
    reserved_bytes=4 * MIB,
)


def test_jupyter_shows_how_requests_were_served() -> None:
    html = STATS._repr_html_()
    tree = ElementTree.fromstring(f"<div>{html.replace('&emsp;', '')}</div>")
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    assert re.findall(r"flex:(\d+)", html) == ["900", "60", "40"]
    assert rows[0] == ["■ served from the plan", "900", "90.00%"]
    assert ["no_plan", "75", ""] in rows
    assert ["arena", "3.0 MiB", "fragmentation 50.00%"] in rows


def test_names_are_escaped_and_nothing_is_divided_by_nothing() -> None:
    assert "<script>" not in NOTHING._repr_html_()
    assert NOTHING.postfix()["planned"] == "0.0%"


def test_a_progress_bar_is_told_so_much() -> None:
    assert STATS.postfix() == {"planned": "90.0%", "live": "1.0 MiB", "reserved": "4.0 MiB", "plans": "2"}
