"""A program that knows nothing of stowplan, the three ways; the other two take too long for here."""

from __future__ import annotations

from experiments.unannotated import measure


def test_the_wave_equation() -> None:
    row = measure("wave_equation", ("1500",))
    assert row.identical
    assert row.faults_with_pool < row.faults
    assert row.blocks >= 4
    assert row.sites >= 3
