"""A mark never costs memory that users see, beside plain NumPy, nor a bit: loops whose steps differ, in processes."""

from __future__ import annotations

import json

import pytest

from ..children import printed

MOST = 12 << 10  # KiB: what stowplan itself needs, and a slack


@pytest.mark.parametrize(("first", "count"), [(0, 10), pytest.param(10, 190, marks=pytest.mark.slow)])
def test_loops_whose_steps_differ_need_no_more_marked_than_plain(first: int, count: int) -> None:
    for line in printed("-m", "tests.properties.marked_programs", first, count).splitlines():
        found = json.loads(line)
        plain, unmarked, marked = (found[way] for way in ("plain", "unmarked", "marked"))
        assert max(unmarked[0], marked[0]) <= plain[0] + MOST, found
        assert plain[1] == unmarked[1] == marked[1], found
