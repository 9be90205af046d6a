"""`stowplan.predict` of functions of CuPy's arrays, against the recorded peak."""

from __future__ import annotations

from typing import Any

import pytest

import stowplan
from stowplan.prediction.traced_run import run

pytestmark = pytest.mark.gpu


def scaled(x: Any) -> Any:
    return (x - x.mean(axis=0)) / x.std(axis=0)


def affine(x: Any) -> Any:
    return x * 2 + 1


@pytest.mark.parametrize(("function", "shape"), [(scaled, (700, 500)), (affine, (900, 300))])
def test_the_peak_on_a_device_is_met(cupy: Any, function: Any, shape: tuple[int, ...]) -> None:
    example = cupy.arange(50.0 * 60).reshape(50, 60)
    found = stowplan.predict(function, example, learning_seconds=20).peak(x=shape)
    assert found.cannot_tell == ""
    assert found.asked == run(function, [cupy.ones(shape)])[0].peak
