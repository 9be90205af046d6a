"""Functions of Chainer's in training steps, plain, lean, and dropping what can be made again: the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import numpy as np
import pytest
from chainer import Variable

from stowplan.chainer import Scheduler, sparing

from . import function_calls

STEPS = 2
NOT_DIFFERENTIABLE = {"accuracy", "argmax", "argmin"}
NEEDS_SCIPY = {"digamma", "erfcinv", "erfcx", "erfinv", "lgamma", "log_ndtr", "ndtr", "ndtri"}
"""Functions that want SciPy on the host, or may."""


class Scaled(chainer.Chain):  # type: ignore[misc]
    """A parameter that all that is given to the functions is a multiple of."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.factor = chainer.Parameter(np.ones(1, np.float32))

    def multiple(self, value: Any) -> Any:
        if value.dtype.kind != "f":
            return value
        factor = F.reshape(F.cast(self.factor, value.dtype), (1,) * value.ndim)
        y = value * F.broadcast_to(factor, value.shape)
        return y + 0 * F.relu(y)


def results(tree: Any) -> Iterator[Any]:
    """Yield the variables among a function's results that have a gradient."""
    if isinstance(tree, Variable):
        if tree.dtype.kind == "f" and tree.creator_node is not None:
            yield tree
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from results(one)


def trained(name: str, options: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the loss and the parameter of each step."""
    model = Scaled()
    model.cleargrads()
    optimizer = chainer.optimizers.MomentumSGD(0.001).setup(model)
    scheduler = None if options is None else Scheduler(optimizer, watch=False, **options)
    found = []
    with monkeypatch.context() as patch:
        patch.setattr(function_calls, "prepared", model.multiple)
        for seed in range(STEPS):
            np.random.seed(seed)
            with nullcontext() if scheduler is None else scheduler.step():
                ys = [F.cast(y, np.float32) for y in results(function_calls.CALLS[name]())]
                loss = sum(F.sum(y * y) for y in ys)
                model.cleargrads()
                loss.backward()
                optimizer.update()
            found += [loss.array.tobytes(), model.factor.array.tobytes()]
    assert not options or scheduler.stats.recomputed > 0  # within a budget
    return found


@pytest.mark.parametrize("name", sorted(function_calls.CALLS.keys() - NOT_DIFFERENTIABLE))
@pytest.mark.filterwarnings("ignore")
def test_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS_SCIPY:
        pytest.importorskip("scipy", reason=f"{name} needs SciPy; expected: pip install scipy")
    state = np.random.get_state()
    try:
        expected = trained(name, None, monkeypatch)
        assert trained(name, {}, monkeypatch) == expected
        monkeypatch.setattr(sparing, "KEPT", 0.0)  # all is dropped in the first two steps, in one segment
        monkeypatch.setattr(sparing, "SEGMENT", 1.0)
        assert trained(name, {"budget": "1 MiB"}, monkeypatch) == expected
    finally:
        np.random.set_state(state)
