"""What runs again, as a schedule does: functions that do something beside, that draw, and those of the user.

Whether each function of Chainer's gives the same bits: test_every_function.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import numpy as np
import pytest

from stowplan.chainer import rerun as again

from .function_calls import CALLS, x

DRAWN = {"dropout": "mask", "gaussian": "eps", "rrelu": "r", "simplified_dropconnect": "mask"}
"""What functions that can be run again drew: it has to stay."""


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Put NumPy's generator, from which Chainer draws, where every test finds it."""
    state = np.random.get_state()
    np.random.seed(0)
    yield
    np.random.set_state(state)


class Applied:
    """One application of a node: its inputs, its outputs, and what it hides."""

    def __init__(self, function: Any, inputs: Any, outputs: Any, before: dict[str, Any]) -> None:
        self.function = function
        self.inputs, self.outputs = [x.array for x in inputs], [y.array for y in outputs]
        self.hidden = again.hidden_arrays(function, [*self.inputs, *self.outputs, *before.values()], least=0)


def record(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[Applied]:
    """Return every node that a call applies with a graph."""
    np.random.seed(0)
    found: list[Applied] = []
    original = chainer.FunctionNode.apply

    def apply(function: Any, inputs: Any) -> Any:
        before = again.held_arrays(function)
        inputs = [chainer.as_variable(value) for value in inputs]
        outputs = original(function, inputs)
        if chainer.config.enable_backprop:
            found.append(Applied(function, inputs, outputs, before))
        return outputs

    with monkeypatch.context() as patch:
        patch.setattr(chainer.FunctionNode, "apply", apply)
        call()
    return found


def bits(arrays: Any) -> list[Any]:
    return [(array.dtype, array.shape, array.strides, array.tobytes()) for array in arrays]


def generators() -> tuple[Any, ...]:
    name, key, *rest = np.random.get_state()
    return name, key.tobytes(), *rest, random.getstate()


def test_the_random_ones_draw_again_without_what_they_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, hidden in DRAWN.items():
        one = record(CALLS[name], monkeypatch)[0]
        assert hidden not in again.rebuildable(one.function, one.inputs, one.outputs, one.hidden)
        again.set_hidden(one.function, hidden, None)
        assert bits(again.rerun(one.function, one.inputs)) != bits(one.outputs)


def test_a_class_of_the_users_is_run_again_once_it_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(chainer.FunctionNode):  # type: ignore[misc]
        def forward(self, inputs: Any) -> Any:
            self.pairs = [inputs[0] * 2, None]
            return (inputs[0] + 1,)

    one = record(lambda: Mine().apply((x(5, 6),)), monkeypatch)[0]
    assert list(one.hidden) == ["pairs.0"]
    assert not again.is_idempotent(one.function, one.inputs, one.outputs)
    try:
        assert again.trust(Mine) is Mine
        assert again.is_idempotent(one.function, one.inputs, one.outputs)
        assert again.rebuildable(one.function, one.inputs, one.outputs, one.hidden) == {"pairs.0"}
    finally:
        again._trusted.discard(Mine)


@pytest.mark.parametrize(
    "fault", ["counts", "writes into its input", "draws", "writes into what it keeps", "fails"]
)
def test_what_a_function_does_beside_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty(chainer.FunctionNode):  # type: ignore[misc]
        calls = 0

        def forward(self, inputs: Any) -> Any:
            Faulty.calls += 1
            kept = getattr(self, "kept", None)
            self.kept = np.zeros(8) if kept is None else kept
            if fault == "writes into its input":
                inputs[0][0] += 1
                return (inputs[0][1:] * 2,)
            if fault == "draws":
                np.random.rand()
            if fault == "writes into what it keeps":
                self.kept += 1
            if fault == "fails" and Faulty.calls > 1:
                raise RuntimeError("only once")
            return (inputs[0] * (Faulty.calls if fault == "counts" else 1),)

    one = record(lambda: Faulty().apply((x(5, 6),)), monkeypatch)[0]
    monkeypatch.setattr(again, "_trusted", {Faulty})
    before = generators()
    assert not again.is_idempotent(one.function, one.inputs, one.outputs)
    assert generators() == before
    assert again.get_hidden(one.function, "kept") is one.hidden["kept"]


def test_a_rerun_sees_the_configuration_of_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with chainer.using_config("train", False):
        config = again.settings()
        one = record(lambda: F.rrelu(x(5, 6)), monkeypatch)[0]
    again.set_hidden(one.function, "r", None)
    assert bits(again.rerun(one.function, one.inputs, config)) == bits(one.outputs)


def test_equal_bits() -> None:
    a, big = np.arange(12.0).reshape(3, 4), np.zeros(1 << 20)
    for array in (a, a.T, np.array([np.nan]), np.zeros((0, 3)), np.zeros(())):
        assert again.bit_equal(array, array.copy("K"))
    assert again.bit_equal(a[:, ::2], a.copy()[:, ::2])
    for one, other in ((np.array([0.0]), np.array([-0.0])), (a, a.astype("f")), (a, np.asfortranarray(a))):
        assert not again.bit_equal(one, other)
    assert not again.bit_equal(a, a.reshape(4, 3))
    assert not again.bit_equal(big, np.append(big[:-1], 1.0))
