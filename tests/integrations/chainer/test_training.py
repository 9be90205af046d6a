"""What counts as a difference between two runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stowplan.insight.demo.training import Run, Step, difference


def a_run(loss: float = 1.5, **state: Any) -> Run:
    return Run(
        (Step(1.0, 0.1, 3), Step(loss, 0.2, 4)), {name: np.asarray(value) for name, value in state.items()}
    )


def test_time_and_page_faults_are_no_difference() -> None:
    one, other = a_run(w=[1.0, 2.0]), a_run(w=[1.0, 2.0])
    assert difference(one, Run(tuple(Step(s.loss, 9.0, 9) for s in other.steps), other.state)) is None


def test_nan_equals_itself() -> None:
    assert difference(a_run(float("nan"), w=[np.nan]), a_run(float("nan"), w=[np.nan])) is None


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (a_run(float(np.nextafter(1.5, 2)), w=[0.0, 1.0]), "the loss of step 1: 1.5 and 1.5000000000000002"),
        (a_run(w=[-0.0, 1.0]), "the values of w"),
        (a_run(w=[0.0, np.nextafter(1.0, 2)]), "the values of w"),
        (a_run(w=np.array([0.0, 1.0], dtype=np.float32)), "w: float64(2,) and float32(2,)"),
        (a_run(w=[[0.0, 1.0]]), "w: float64(2,) and float64(1, 2)"),
        (a_run(w=[0.0, 1.0], b=[0.0]), "b exists in one run only"),
        (a_run(), "w exists in one run only"),
    ],
)
def test_one_bit_is_a_difference(other: Run, expected: str) -> None:
    assert difference(a_run(w=[0.0, 1.0]), other) == expected
