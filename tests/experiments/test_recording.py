"""The measurement of what recording costs: that it measures."""

from __future__ import annotations

from experiments.recording import measure


def test_each_way_is_timed() -> None:
    row = measure("arrays of 20 x 20", rounds=1)
    assert min(row.plain, row.recorded, row.with_sites) > 0
