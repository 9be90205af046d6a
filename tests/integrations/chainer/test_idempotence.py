"""Every function of Chainer's, run again as a schedule does: which give the same bits, and which never can.

`function_calls` has a call for every function of `chainer.functions`; each node of the graph that the call makes is
run again. What is expected of each class stands in `DIFFERENT` and `KEPT`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import numpy as np
import pytest
from chainer import Variable

from stowplan.chainer import rerun as again

from .function_calls import CALLS, x

DIFFERENT = {
    "Zoneout": "draws in every forward call",
    "NegativeSamplingFunction": "draws in every forward call, from a sampler of the caller's",
    "Forget": "calls a function of the caller's",
    "BatchRenormalizationFunction": "reads the statistics that it moves",
}
"""Classes that are never run again, and why."""

KEPT = {"Dropout": {"mask"}, "Gaussian": {"eps"}, "RReLU": {"r"}, "SimplifiedDropconnect": {"mask"}}
"""What classes that can be run again drew: it has to stay."""

WITHOUT_NODE = {"ceil", "fix", "floor", "sign"}
"""Functions without a gradient, which put nothing into the graph."""

NEEDS_SCIPY = {
    *("digamma", "erfcinv", "erfcx", "erfinv", "lgamma", "log_ndtr", "ndtr", "ndtri", "polygamma", "zeta"),
    *("det", "inv", "cholesky", "batch_det", "batch_inv", "sparse_matmul"),
}
"""Functions that want SciPy on the host, or may."""


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Put NumPy's generator, from which Chainer draws, where every test finds it."""
    state = np.random.get_state()
    np.random.seed(0)
    yield
    np.random.set_state(state)


def test_every_function_is_called() -> None:
    known = {
        name
        for name, value in vars(F).items()
        if isinstance(value, FunctionType) and not name.startswith("_")
    }
    assert known == set(CALLS) | WITHOUT_NODE
    for name in WITHOUT_NODE:
        assert getattr(F, name)(x(5, 6)).creator_node is None


class Applied:
    """One application of a node: its inputs, its outputs, and what it held before."""

    def __init__(self, function: Any, inputs: Any, outputs: Any, before: dict[str, Any]) -> None:
        self.function = function
        self.variables = inputs
        self.inputs = [value.array if isinstance(value, Variable) else value for value in inputs]
        self.outputs = [y.array for y in outputs]
        self.results = outputs
        self.hidden = again.hidden_arrays(function, [*self.inputs, *self.outputs, *before.values()], least=0)

    @property
    def name(self) -> str:
        return type(self.own).__name__

    @property
    def own(self) -> Any:
        """The old-style function that an adapter wraps, or the node itself."""
        return again.old_style(self.function) or self.function


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


def gradients(one: Applied) -> list[Any] | None:
    """Bits of the gradients at the node's inputs; None where it has none."""
    outputs = [y for y in one.results if y.creator_node is not None and y.dtype.kind == "f"]
    wanted = [v for v in one.variables if v.requires_grad and v.dtype.kind == "f"]
    if not outputs or not wanted or one.name == "Forget":
        return None
    seeds = [Variable(np.random.default_rng(9).standard_normal(y.shape).astype(y.dtype)) for y in outputs]
    found = chainer.grad(outputs, list({id(v): v for v in wanted}.values()), seeds)
    return [None if g is None else bits([g.array]) for g in found]


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.filterwarnings("ignore")
def test_run_again_as_a_schedule_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS_SCIPY:
        pytest.importorskip(
            "scipy", reason="SciPy is not installed; expected for Chainer's special functions"
        )
    with np.errstate(all="ignore"):
        applied, twins = (record(CALLS[name], monkeypatch) for _ in range(2))
        assert applied, "the call applies no node"
        for one, twin in zip(applied, twins, strict=True):
            check(one, twin)


def check(one: Applied, twin: Applied) -> None:
    """Run one node again; its twin, from the same call, says what the gradients are to be."""
    function = one.function
    attributes, held, before = dict(function.__dict__), again.held_arrays(function), generators()
    moved = {name: value for name, value in vars(one.own).items() if name.lstrip("_").startswith("running")}
    statistics = {name: value.copy() for name, value in moved.items() if value is not None}
    kept = list(held), bits(held.values())
    expected_hidden, expected = bits(one.hidden.values()), bits(one.outputs)
    known_different = one.name in DIFFERENT and getattr(one.own, "update_statistics", True)

    idempotent = again.is_idempotent(function, one.inputs, one.outputs)
    dropped = again.rebuildable(function, one.inputs, one.outputs, one.hidden)

    assert idempotent == (not known_different), one.name
    assert dropped == (frozenset() if known_different else set(one.hidden) - KEPT.get(one.name, set())), (
        one.name
    )
    if idempotent:
        # And now by hand, with what the schedule may drop gone.
        for name in dropped:
            again.set_hidden(function, name, None)
        outputs = again.rerun(function, one.inputs)
        assert bits(outputs) == expected
        assert bits(again.get_hidden(function, name) for name in one.hidden) == expected_hidden
    assert generators() == before
    for name, value in statistics.items():
        assert vars(one.own)[name] is moved[name]
        assert (moved[name] == value).all()
    for name, value in attributes.items():
        if name not in one.hidden and name != "_function" and not isinstance(value, tuple | list):
            assert function.__dict__[name] is value, name
    held = again.held_arrays(function)
    assert (list(held), bits(held.values())) == kept
    assert gradients(one) == gradients(twin)  # last: some functions write into what they keep


def test_the_differences_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is never run again would not give the same, but for `forget` around functions that do."""
    for name in ("zoneout", "negative_sampling", "batch_renormalization"):
        one = record(CALLS[name], monkeypatch)[0]
        assert one.name in DIFFERENT
        assert bits(again.rerun(one.function, one.inputs)) != bits(one.outputs)


def test_the_random_ones_draw_again_without_what_they_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dropout", "gaussian", "rrelu", "simplified_dropconnect"):
        one = record(CALLS[name], monkeypatch)[0]
        for hidden in KEPT[one.name]:
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
    a = np.arange(12.0).reshape(3, 4)
    assert again.bit_equal(a, a.copy())
    assert again.bit_equal(a.T, a.copy().T)
    assert again.bit_equal(np.array([np.nan]), np.array([np.nan]))
    assert not again.bit_equal(np.array([0.0]), np.array([-0.0]))
    assert not again.bit_equal(a, a.astype("f"))
    assert not again.bit_equal(a, np.asfortranarray(a))
    assert not again.bit_equal(a, a.reshape(4, 3))
    assert again.bit_equal(np.zeros((0, 3)), np.zeros((0, 3)))
    assert again.bit_equal(np.zeros(()), np.zeros(()))
    assert again.bit_equal(a[:, ::2], np.arange(12.0).reshape(3, 4)[:, ::2])
    big = np.zeros(1 << 20)
    other = big.copy()
    other[-1] = 1
    assert not again.bit_equal(big, other)
