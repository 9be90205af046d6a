"""What `stowplan.predict` says where its seconds do not suffice: nothing that is wrong, however busy the machine is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import stowplan

from .test_predict import LINE, chained, measured

pytestmark = pytest.mark.usefixtures("modest")


@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.1, 0.3])
def test_the_clock_makes_no_other_law(seconds: float) -> None:
    """Where learning is given up, it cannot tell; or else the answer is right."""
    found = stowplan.predict(chained, LINE, learning_seconds=seconds).peak(x=10**6)
    assert found.asked == measured(chained, {"x": (10**6,)}) or "too slow to learn" in found.cannot_tell


def test_the_laws_of_short_runs_alone_are_no_answer() -> None:
    """Its sleeps keep runs so short that a ninth of the largest block is below what NumPy computes in place."""

    def slow(x: Any) -> Any:
        time.sleep(3e-5 * len(x))
        y = np.repeat(x, 9)
        z = np.exp(-((x - 0.5) ** 2) / 2) + x * 2 - x / 3
        return y.sum() + z.sum()

    found = stowplan.predict(slow, np.ones(1000), learning_seconds=2).peak(x=50_000)
    true = measured(slow, {"x": (50_000,)})
    assert found.asked <= 1.01 * true
    assert found.cannot_tell or found.asked >= 0.99 * true
