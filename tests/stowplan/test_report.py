"""What the report shows, and what its file holds. How it answers stands in test_report_browser.py."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.insight.report.figures import AddressMap, plan_map, pool_map, raster, top_sites
from stowplan.planning import make_plan
from stowplan.profiler import ESCAPED, Profile

from .command_line import refused, stowplan

needs_bokeh = pytest.mark.skipif(
    find_spec("bokeh") is None, reason="bokeh is not installed; expected: pip install 'stowplan[report]'"
)

PROFILE = Profile(
    [1000, 700, 300, 5000],
    [0, 2, 3, 5],
    [4, 9, ESCAPED, 6],  # within the step, wrapped, escaped
    period=8,
    site=np.array([0, 1, -1, 0], dtype=np.int32),
    sites=("train.py:7 step", "</script><img src=x onerror=alert(1)>"),
)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Steps in which an event a tick allocates or frees; every second block may wrap."""
    n = draw(st.integers(1, 8))
    tick = np.array(draw(st.permutations(range(2 * n)))).reshape(n, 2)
    wraps = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    start = np.where(wraps, tick.max(axis=1), tick.min(axis=1))
    end = np.where(wraps, tick.min(axis=1) + 2 * n, tick.max(axis=1))
    order = np.argsort(start)
    size = np.array(draw(st.lists(st.integers(1, 3000), min_size=n, max_size=n)))
    return Profile(size, start[order], end[order], period=2 * n)


@given(profiles())
@settings(settings.get_profile("dear"))
def test_pieces_do_not_overlap_and_cover_every_lifetime(profile: Profile) -> None:
    plan = make_plan(profile, alignment=512)
    tall = plan.problem.size
    for pieces in (plan_map(plan), pool_map(plan)):
        alive = np.zeros((len(profile), profile.period), dtype=int)
        for t in range(profile.period):
            now = np.flatnonzero((pieces.start <= t) & (t < pieces.end))
            alive[pieces.row[now], t] += 1
            low = pieces.address[now]
            order = np.argsort(low)
            assert (low[order][1:] >= (low + tall[pieces.row[now]])[order][:-1]).all()
        assert (pieces.address + tall[pieces.row] <= pieces.reserved).all()
        for t in range(profile.period):
            assert (alive[:, t] == profile.alive_at(t) & profile.planned).all()


def test_top_sites() -> None:
    plan = make_plan(PROFILE, alignment=512)
    sites, rank = top_sites(plan, peak_tick=5)
    told = [(site.name, site.at_peak, site.blocks, site.largest) for site in sites]
    assert told == [("train.py:7 step", 5000, 2, 5000), (PROFILE.sites[1], 700, 1, 700)]
    assert rank.tolist() == [0, 1, 0]


def test_the_image_shows_pieces_where_they_are() -> None:
    pieces = AddressMap(*(np.array(a) for a in ([0, 1], [0, 6], [5, 10], [0, 5])), reserved=10)
    image = raster(pieces, np.array([5, 5]), np.array([1, 2]), (10, 10), (4, 4))
    assert image.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2]]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    PROFILE.save(tmp_path / "step.profile")
    return tmp_path / "step.profile"


@needs_bokeh
def test_pages_ask_the_network_for_nothing_and_no_name_is_code(saved: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert stowplan("report", saved, "-o", page, "--title", "<b>&").exit_code == 0
    text = page.read_text()
    assert "<title>&lt;b&gt;&amp;</title>" in text
    assert "<img src=x" not in text
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?!data:)", text)


@needs_bokeh
@pytest.mark.parametrize("profile", [Profile([], [], []), Profile([8], [0], [ESCAPED], period=1)])
def test_a_profile_without_planned_blocks_has_a_report(tmp_path: Path, profile: Profile) -> None:
    profile.save(tmp_path / "empty.profile")
    assert stowplan("report", tmp_path / "empty.profile", "-o", tmp_path / "report.html").exit_code == 0


@pytest.mark.parametrize("suffix", ["pdf", "png", "svg"])
def test_bad_input_writes_nothing(saved: Path, suffix: str, tmp_path: Path) -> None:
    said = refused("report", saved, "-o", tmp_path / f"report.{suffix}")
    assert "expected the suffix .html" in said
    saved.write_bytes(b"PK")
    assert refused("report", saved, "-o", tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["step.profile"]
