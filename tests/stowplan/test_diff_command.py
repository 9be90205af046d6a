"""``stowplan diff``: call sites of two runs, line by line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stowplan import Profile
from stowplan.errors import ProfileError
from stowplan.insight.differences import Difference, differences, other_peaks
from stowplan.profiler.program_summary import Holder, Program

from .command_line import stowplan

OLD, NEW = "/old/site-packages/net/links.py", "/new/lib/site-packages/net/links.py"


def run_of(*holders: tuple[str, int, int]) -> Profile:
    """Return a profile of a program with these holders."""
    none = np.empty(0, dtype=np.int64)
    held = tuple(Holder(*holder) for holder in holders)
    return Profile(none, none, none, program=Program(live_peak=sum(h.bytes for h in held), holders=held))


def test_moved_lines_and_folders_are_matched() -> None:
    before = run_of((f"{OLD}:10 f", 1, 400), (f"{OLD}:12 g", 1, 100), ("a.py:3 main > np.py:7 ones", 2, 50))
    after = run_of(
        (f"{NEW}:10 f", 1, 400), (f"{NEW}:15 g", 2, 300), ("a.py:3 main > np.py:9 ones", 2, 50), ("h", 1, 5)
    )
    assert differences(before, after) == [
        Difference(f"{NEW}:15 g", 100, 300, 1, 2),
        Difference("h", 0, 5, 0, 1),
        Difference(f"{NEW}:10 f", 400, 400, 1, 1),
        Difference("a.py:3 main > np.py:9 ones", 50, 50, 2, 2),
    ]


def test_a_site_that_is_there_in_both_is_not_moved() -> None:
    before = run_of(("a.py:1 f", 1, 10), ("a.py:9 f", 1, 20))
    after = run_of(("a.py:9 f", 1, 30), ("a.py:12 f", 1, 10))
    assert [(d.site, d.more) for d in differences(before, after)] == [("a.py:9 f", 10), ("a.py:12 f", 0)]


def test_callers_of_one_profile_alone_are_left_out() -> None:
    before = run_of(("a.py:1 f", 3, 30))
    after = run_of(("a.py:7 main > a.py:1 f", 1, 10), ("a.py:8 main > a.py:1 f", 2, 20))
    assert differences(before, after) == [Difference("a.py:1 f", 30, 30, 3, 3)] == differences(after, before)
    # What a library's frames have called stands behind: sites of one profile are not equally long.
    inner, tail = "a.py:1 f", "a.py:2 g > np.py:7 ones"
    before, after = (
        run_of((inner, 1, 10), (tail, 1, 5)),
        run_of((f"m > {inner}", 1, 10), (f"m > {tail}", 1, 5)),
    )
    assert [found.more for found in differences(before, after) + differences(after, before)] == [0] * 4


def test_call_sites_are_needed() -> None:
    step = Profile([10, 20], [0, 1], [3, 2], period=4)
    with pytest.raises(ProfileError, match="no call sites"):
        differences(step, step)


def test_the_command_lists_the_largest_first(tmp_path: Path) -> None:
    old, new = tmp_path / "old.profile", tmp_path / "new.profile"
    run_of(("a.py:1 f", 1, 1 << 20), ("b.py:2 g", 1, 1 << 21)).save(old)
    run_of(("a.py:1 f", 3, 4 << 20), ("b.py:2 g", 1, 1 << 20)).save(new)
    result = stowplan("diff", old, new, "--top", 1)
    assert result.exit_code == 1
    assert "+ 2.0 MiB at the fullest moment" in result.stdout
    assert "+ 3.0 MiB" in result.stdout
    assert "1 other call site: - 1.0 MiB" in result.stdout
    same = stowplan("diff", old, old)
    assert "no call site differs" in same.stdout
    assert same.exit_code == 0


def test_the_report_lists_what_held_the_peak(tmp_path: Path) -> None:
    pytest.importorskip("bokeh", reason="bokeh is not installed; expected: pip install 'stowplan[report]'")
    from stowplan.insight.report import save_report

    held = (Holder("a.py:1 f", 3, 3 << 20), Holder("", 1, 1 << 20))
    program = Program(live_peak=4 << 20, holders=held)
    profile = Profile(np.array([100]), np.array([0]), np.array([1]), period=2, program=program)
    save_report(tmp_path / "step.html", profile)
    page = (tmp_path / "step.html").read_text()
    assert "Fullest moment of the whole run" in page
    row = '<td>a.py:1 f</td><td class="number">3.0 MiB</td><td class="number">75.0%</td><td class="number">3</td>'
    assert row in page


def test_another_moment_as_full_is_told() -> None:
    """Two calls of 100 bytes each, one after the other, and a third of 50."""
    step = Profile([100, 100, 50], [0, 2, 4], [1, 3, 5], period=6, site=[0, 1, 2], sites=("a", "b", "c"))
    assert other_peaks(step) == [("b", 100)]
    assert other_peaks(Profile([100, 100], [0, 2], [1, 3], period=4, site=[0, 0], sites=("a",))) == []
    # One moment, wrapped.
    assert other_peaks(Profile([1000], [2], [4], period=3, site=[0], sites=("a",))) == []
