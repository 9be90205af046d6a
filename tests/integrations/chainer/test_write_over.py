"""ReLU's and sigmoid's gradient, written over the gradient of the output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import numpy as np
import pytest

from stowplan.chainer.backward_pass import write_over

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="reference counts prove nothing there")
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-30]


def applied(activation: Callable[..., Any], dtype: Any = np.float32) -> tuple[Any, Any, Any]:
    """The function after its forward pass, its output, and a gradient for that."""
    rng = np.random.default_rng(0)
    x, gy = (np.array([*SPECIAL, *rng.standard_normal(600)], dtype=dtype).reshape(8, -1) for _ in range(2))
    gy = gy.copy()  # no view
    rng.shuffle(gy, axis=1)
    y = activation(chainer.Variable(x))
    return y.creator, y, chainer.Variable(gy)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("activation", [F.relu, F.sigmoid])
def test_the_bits_are_chainers(activation: Callable[..., Any], dtype: Any) -> None:
    function, _y, gy = applied(activation, dtype)
    with np.errstate(all="ignore"), chainer.no_backprop_mode():
        expected = function.backward((0,), (chainer.Variable(gy.array.copy()),))[0].array
        out_grad, address = (gy,), gy.array.ctypes.data
        del gy
        assert write_over(function, out_grad)
    assert out_grad[0].array.tobytes() == expected.tobytes()
    assert out_grad[0].array.ctypes.data == address


def _kept(out_grad: Any) -> Any:
    return out_grad[0]


def _shown(out_grad: Any) -> Any:
    return out_grad[0].array[1:]


def _transposed(out_grad: Any) -> Any:
    out_grad[0].array = np.asfortranarray(out_grad[0].array)


def _read_only(out_grad: Any) -> Any:
    out_grad[0].array.flags.writeable = False


def _of_another_type(out_grad: Any) -> Any:
    out_grad[0].array = out_grad[0].array.astype(np.float64)


@pytest.mark.parametrize("makes", [_kept, _shown, _transposed, _read_only, _of_another_type])
def test_what_is_held_or_not_alike_stays(makes: Callable[..., Any]) -> None:
    function, _y, gy = applied(F.relu)
    out_grad = (gy,)
    del gy
    held = makes(out_grad)
    before = out_grad[0].array.tobytes()
    assert not write_over(function, out_grad)
    assert out_grad[0].array.tobytes() == before
    del held
