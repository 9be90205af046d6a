"""docs/architecture.rst lists the calls from a step's log to the core: they are there, and they are made."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 40


def listed() -> list[tuple[str, Path]]:
    """Return the name and the file of each call."""
    text = (ROOT / "docs" / "architecture.rst").read_text()
    found = re.findall(r"^ +(\d+)  ([\w.:]+) +([\w/]+\.\w+)$", text, re.MULTILINE)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1))
    return [(name, ROOT / path) for _, name, path in found]


def test_the_way_of_a_plan_takes_no_more_calls_than_listed() -> None:
    calls = listed()
    assert 0 < len(set(calls)) == len(calls) <= MOST
    for name, path in calls:
        *owner, function = re.split(r"\.|::", name)
        text = path.read_text()
        assert re.search(rf"\b{function}\(", text), name
        assert all(re.search(rf"\b{one}\b", text) for one in owner), name
