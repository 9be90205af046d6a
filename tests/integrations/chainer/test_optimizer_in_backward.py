"""A gradient that an early update has consumed is never read as another one: it raises, until it is cleared or set."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest

from stowplan.chainer import Scheduler, trust
from stowplan.errors import ScheduleError

from .programs import Bomb


def trained(**options: Any) -> tuple[Any, Any, Scheduler, Any]:
    """Return a model after two steps, its optimizer, the scheduler, and what a step's loss is."""
    np.random.seed(0)
    model = chainer.Sequential(L.Linear(8, 8), F.tanh, L.Linear(8, 8), F.tanh, L.Linear(8, 2))
    optimizer = chainer.optimizers.MomentumSGD().setup(model)
    scheduler = Scheduler(optimizer, **options)

    def loss(*_: Any) -> Any:
        return F.sum(model(np.ones((4, 8), np.float32)) ** 2)

    for _ in range(2):
        with scheduler.step():
            optimizer.update(loss)
    return model, optimizer, scheduler, loss


def finite(variable: Any) -> bool:
    return bool(np.isfinite(variable.array).all())


READS: dict[str, Callable[[Any, Any, Any], object]] = {
    "grad": lambda model, optimizer, loss: model[0].W.grad,
    "grad is None": lambda model, optimizer, loss: model[0].W.grad is None,
    "grad_var": lambda model, optimizer, loss: finite(model[0].W.grad_var),
    "grad_var.array": lambda model, optimizer, loss: model[0].W.grad_var.array,
    "grad_var.shape": lambda model, optimizer, loss: model[0].W.grad_var.shape,
    "a sum with it": lambda model, optimizer, loss: model[0].W.grad_var + 1,
    "node": lambda model, optimizer, loss: model[0].W.node.grad,
    "namedparams": lambda model, optimizer, loss: [param.grad for _, param in model.namedparams()],
    "addgrads": lambda model, optimizer, loss: model.copy("copy").addgrads(model),
    "copy.copy": lambda model, optimizer, loss: copy.copy(model[0].W).grad,
    "copy.deepcopy": lambda model, optimizer, loss: copy.deepcopy(model)[0].W.grad,
    "Link.copy": lambda model, optimizer, loss: model.copy("copy")[0].W.grad,
    "a backward pass, then grad": lambda model, optimizer, loss: (loss().backward(), model[0].W.grad),
    "update()": lambda model, optimizer, loss: optimizer.update(),
    "a hook": lambda model, optimizer, loss: (
        optimizer.call_hooks("pre") or [param.grad for param in optimizer.target.params()]
    ),
}


@pytest.mark.parametrize("within", [False, True], ids=["between steps", "in a step"])
@pytest.mark.parametrize("name", READS)
def test_whatever_reads_it_raises(name: str, within: bool) -> None:
    model, optimizer, scheduler, loss = trained()
    before = [param.array.copy() for param in model.params()]
    gone = r"the gradient of the parameter [Wb] is gone: .*early_updates=False"
    with pytest.raises(ScheduleError, match=gone), scheduler.step() if within else nullcontext():
        READS[name](model, optimizer, loss)
    assert all(map(np.array_equal, before, (param.array for param in model.params())))


def test_a_pickle_s_is_not_to_be_read_either() -> None:
    model, *_ = trained()
    again = pickle.loads(pickle.dumps(model[0].W))
    with pytest.raises(RuntimeError, match=r"Cannot retrieve Variable\.grad"):
        _ = again.grad
    assert np.array_equal(again.array, model[0].W.array)


def test_clearing_and_setting_are_no_reads() -> None:
    model, *_ = trained()
    model[0].cleargrads()
    assert model[0].W.grad is None
    with pytest.warns(DeprecationWarning, match="zerograd"):
        model[2].W.zerograd()
    assert (model[2].W.grad == 0).all()
    model[4].W.grad = np.ones_like(model[4].W.array)
    assert (model[4].W.grad == 1).all()
    model.to_device("@numpy")
    assert repr(model[0].b.grad_var) == "None"
    assert repr(model[2].b.grad_var) == "<the gradient of b, consumed>"


def test_without_early_updates_gradients_stay() -> None:
    model, *_, scheduler, _ = trained(early_updates=False)
    assert all(param.grad is not None for param in model.params())
    assert scheduler.stats.keeps_gradients == "early_updates is False"


def test_a_loop_by_hand_has_one_optimizer_if_it_asks_for_early_updates() -> None:
    optimizers = [chainer.optimizers.SGD().setup(L.Linear(2, 2)) for _ in range(2)]
    with pytest.raises(ScheduleError, match="early_updates is True, with 2 optimizers; expected one"):
        Scheduler(optimizers, early_updates=True)


@trust
class Failing(Bomb):
    """Declared to be harmless, and fails in its backward step."""


def test_after_a_half_update_no_step_begins() -> None:
    model, optimizer, scheduler, loss = trained()
    before = [param.array.copy() for param in model.params()]
    with pytest.raises(ArithmeticError), scheduler.step():
        optimizer.update(
            lambda: F.sum(
                model[4](Failing(ArithmeticError).apply((model[0](np.ones((4, 8), np.float32)),))[0]) ** 2
            )
        )
    same = [np.array_equal(one, param.array) for one, param in zip(before, model.params(), strict=True)]
    assert any(same)
    assert not all(same)
    with pytest.raises(ScheduleError, match="had updated some parameters, and not all"), scheduler.step():
        optimizer.update(loss)
