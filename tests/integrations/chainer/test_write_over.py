"""ReLU's and sigmoid's gradient, written over the gradient of the output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest

from stowplan.chainer import record_graph
from stowplan.chainer.gradients import write_over

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="counts of references prove nothing there"
)
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


def test_arrays_of_a_device_have_their_own() -> None:
    function, _y, _ = applied(F.relu)
    assert not write_over(function, (SimpleNamespace(layout=None, raw_array=object()),))


def test_hooks_debugging_and_other_functions_have_their_own() -> None:
    function, _y, gy = applied(F.relu)
    out_grad = (gy,)
    del gy
    with chainer.function_hooks.TimerHook():
        assert not write_over(function, out_grad)
    with chainer.using_config("debug", True):
        assert not write_over(function, out_grad)
    assert not write_over(function, (None,))
    other, _z, gz = applied(F.tanh)
    assert not write_over(other, (gz,))
    assert write_over(function, out_grad)


class Net(chainer.Chain):  # type: ignore[misc]
    """Two activations whose outputs have one gradient, and another one."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.one, self.other, self.last = L.Linear(64, 64), L.Linear(64, 64), L.Linear(64, 3)

    def forward(self, x: Any) -> Any:
        return self.last(F.relu(self.one(x)) + F.sigmoid(F.sigmoid(self.other(x))))


def test_the_recorded_step_has_one_storage_for_both_gradients() -> None:
    model = Net()
    optimizer = chainer.optimizers.SGD().setup(model)
    x, t = np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32), np.arange(256) % 3
    graph = record_graph(optimizer, lambda: optimizer.update(lambda: F.softmax_cross_entropy(model(x), t)))
    dependencies = graph.dependencies().rows()
    shared = [
        {int(graph.storage[v]) for v in graph.reads[at]} & {int(graph.storage[v]) for v in graph.writes[at]}
        for at, label in enumerate(graph.label)
        if label in ("ReLU'", "Sigmoid'")
    ]
    # The sum's terms have one gradient: the first that reads it makes its own array, the second writes over it.
    assert [len(both) for both in shared] == [0, 1, 1]
    first, second, _ = (at for at, label in enumerate(graph.label) if label in ("ReLU'", "Sigmoid'"))
    assert first in dependencies[second]
