"""Updates in pieces: the bits of Chainer's own, for every optimizer; and far fewer temporaries."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import chainer
import numpy as np
import pytest
from chainer import optimizer_hooks as hooks
from chainer import optimizers

from stowplan.chainer import updates
from stowplan.chainer.updates import call_hook_in_pieces, update_in_pieces

from ...running import traced


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into pieces of 16 elements of float32."""
    monkeypatch.setattr(updates, "PIECE_BYTES", 64)


MAKERS: dict[str, Callable[[], Any]] = {
    "SGD": optimizers.SGD,
    "MomentumSGD": optimizers.MomentumSGD,
    "CorrectedMomentumSGD": optimizers.CorrectedMomentumSGD,
    "NesterovAG": optimizers.NesterovAG,
    "RMSprop": optimizers.RMSprop,
    "RMSprop inside": lambda: optimizers.RMSprop(eps_inside_sqrt=True),
    "RMSpropGraves": optimizers.RMSpropGraves,
    "AdaGrad": optimizers.AdaGrad,
    "AdaDelta": optimizers.AdaDelta,
    "Adam": optimizers.Adam,
    "Adam eta": lambda: optimizers.Adam(eta=0.9, weight_decay_rate=0.01),
    "AdamW": lambda: optimizers.AdamW(weight_decay_rate=0.01),
    "AMSGrad": optimizers.AMSGrad,
    "AdaBound": optimizers.AdaBound,
    "AMSBound": optimizers.AMSBound,
    "MSVAG": optimizers.MSVAG,
    "SMORMS3": optimizers.SMORMS3,
}
WHOLE = {"MSVAG", "SMORMS3"}


def test_every_optimizer_of_chainer_is_here() -> None:
    known = {
        name
        for name, value in vars(optimizers).items()
        if isinstance(value, type) and issubclass(value, chainer.GradientMethod)
    }
    assert known <= set(MAKERS)


def parameter(optimizer: Any, shape: tuple[int, ...], dtype: Any, order: str = "C") -> Any:
    values = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    param = chainer.Parameter(np.array(values, order=order))
    link = chainer.Link()
    with link.init_scope():
        link.p = param
    optimizer.setup(link)
    return param


def gradient(shape: tuple[int, ...], dtype: Any, step: int, order: str = "C") -> Any:
    values = np.random.default_rng(step).standard_normal(shape).astype(dtype)
    values.reshape(-1)[::7] = 0
    return np.array(values, order=order)


def run(
    update: Callable[[Any], None],
    make: Callable[[], Any],
    shape: tuple[int, ...],
    dtype: Any = np.float32,
    order: str = "C",
    prepare: Callable[[Any], None] = lambda rule: None,
    loss_scale: float | None = None,
) -> dict[str, Any]:
    optimizer = make()
    param = parameter(optimizer, shape, dtype, order)
    prepare(param.update_rule)
    for step in range(4):
        param.grad = gradient(shape, dtype, step, order)
        param._loss_scale = loss_scale
        update(param)
    found = {"array": param.array, "grad": param.grad, "t": param.update_rule.t}
    found.update(param.update_rule.state or {})
    if param.update_rule._fp32_param is not None:
        found["fp32"] = param.update_rule._fp32_param.array
    return found


def same_bits(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(second[name]), err_msg=name)
        assert np.asarray(value).tobytes() == np.asarray(second[name]).tobytes(), name
        assert np.asarray(value).dtype == np.asarray(second[name]).dtype, name


SHAPES = [(1,), (15,), (16,), (17,), (5, 13), (3, 4, 11)]
TYPES = [*((shape, np.float32, False) for shape in SHAPES), ((9, 11), np.float64, False)]
TYPES += [((9, 11), np.float16, in_float32) for in_float32 in (False, True)]


def outcome(update: Callable[[Any], None], name: str, shape: tuple[int, ...], dtype: Any, **how: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return run(update, MAKERS[name], shape, dtype, **how)
    except ValueError as error:  # Chainer's, of an eps that float16 cannot hold: both must raise it
        return {"error": str(error)}


@pytest.mark.parametrize("name", MAKERS)
def test_same_bits_for_every_rule_size_and_type(name: str) -> None:
    for shape, dtype, in_float32 in TYPES:
        how: Any = {"prepare": lambda rule: rule.use_fp32_update(), "loss_scale": 8.0} if in_float32 else {}
        cut, whole = (
            outcome(u, name, shape, dtype, **how) for u in (update_in_pieces, lambda param: param.update())
        )
        same_bits(cut, whole)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "hook", [hooks.WeightDecay(0.1), hooks.Lasso(0.1), hooks.GradientHardClipping(-0.5, 0.5)]
)
def test_same_bits_with_hooks_and_in_column_order(order: str, hook: Any) -> None:
    def cut(param: Any) -> None:
        call_hook_in_pieces(hook, param)
        update_in_pieces(param)

    def whole(param: Any) -> None:
        hook(param.update_rule, param)
        param.update()

    for scale in (None, 16.0):
        same_bits(
            run(cut, optimizers.Adam, (7, 9), order=order, loss_scale=scale),
            run(whole, optimizers.Adam, (7, 9), order=order, loss_scale=scale),
        )


def test_a_learning_rate_may_be_an_array() -> None:
    def prepare(rule: Any) -> None:
        rule.hyperparam.lr = np.linspace(0, 1, 40, dtype=np.float32)

    cut, whole = (
        run(update, optimizers.SGD, (40,), prepare=prepare)
        for update in (update_in_pieces, lambda param: param.update())
    )
    same_bits(cut, whole)


def test_arrays_that_are_not_contiguous_run_whole() -> None:
    optimizer = optimizers.SGD()
    param = parameter(optimizer, (40,), np.float32)
    param.array = np.zeros((80,), np.float32)[::2]
    param.grad = np.ones(40, np.float32)
    update_in_pieces(param)
    assert (param.array == np.float32(-0.01)).all()


def test_the_state_is_whole_again_after_an_error() -> None:
    param = parameter(optimizers.Adam(), (40,), np.float32)
    param.grad = gradient((40,), np.float32, 0)
    update_in_pieces(param)
    rule = param.update_rule
    state = rule.state
    rule.hyperparam.beta1 = "not a number"
    with pytest.raises(TypeError):
        update_in_pieces(param)
    assert rule.state is state
    assert rule.state["m"].shape == (40,)
    assert "update_core" not in vars(rule)


def peak(update: Callable[[Any], None], make: Callable[[], Any], n: int) -> float:
    """Bytes of temporaries at the most, as a share of the parameter."""
    param = parameter(make(), (n,), np.float32)
    for step in range(2):
        param.grad = gradient((n,), np.float32, step)
        with traced():
            before = tracemalloc.get_traced_memory()[0]
            update(param)
            # the state, made in the first update, is not a temporary
            taken = tracemalloc.get_traced_memory()[1] - before
    return taken / (4 * n)


@pytest.mark.parametrize("name", sorted(set(MAKERS) - WHOLE))
def test_temporaries_are_those_of_a_piece(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 1 << 20
    monkeypatch.setattr(updates, "PIECE_BYTES", n // 2)
    assert peak(update_in_pieces, MAKERS[name], n) < 0.9
    assert peak(lambda p: p.update(), MAKERS[name], n) > 0.9
