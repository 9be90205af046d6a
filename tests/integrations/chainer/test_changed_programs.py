"""Programs that an early update, or a second run of an operator, would change: Chainer's bits, or an error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("chainer", reason="Chainer is not installed")
import stowplan.chainer  # isort: skip (mends Chainer before it is imported)
import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812

from stowplan.errors import BudgetError, ScheduleError

STEPS = 8
WAYS: dict[str, dict[str, Any]] = {"lean": {}, "unwatched": {"watch": False}, "budget": {"budget": "1 GiB"}}
BY_HAND = "optimizer.update() comes after backward(), and the program stands between them"
Update = Callable[[int, "Net", Any, Any, Any], None]


class Net(chainer.Chain):  # type: ignore[misc]
    def __init__(self, between: Callable[[Any], None] = lambda h: None, *, cuts: bool = False) -> None:
        super().__init__()
        self.between, self.cuts = between, cuts
        with self.init_scope():
            self.layers = chainer.ChainList(*[L.Linear(64, 64) for _ in range(6)])
            self.gate, self.last = L.Linear(64, 64), L.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        h = F.tanh(self.layers[0](chainer.as_variable(x) * 2 - 1))
        self.between(h)
        for layer in self.layers[1:]:
            h = F.tanh(layer(h))
        z = F.sigmoid(self.gate(h))
        y = h * z
        if self.cuts:
            z.unchain()
        return self.last(y)


def usual(number: int, model: Net, optimizer: Any, x: Any, t: Any) -> None:
    model.cleargrads()
    F.softmax_cross_entropy(model(x), t).backward()
    optimizer.update()


def accumulates(number: int, model: Net, optimizer: Any, x: Any, t: Any) -> None:
    if number % 2 == 0:
        model.cleargrads()
    F.softmax_cross_entropy(model(x), t).backward()
    if number % 2 == 1:
        optimizer.update()


def skips(number: int, model: Net, optimizer: Any, x: Any, t: Any) -> None:
    model.cleargrads()
    F.softmax_cross_entropy(model(x), t).backward()
    if number != 5:
        optimizer.update()


def updates_twice(number: int, model: Net, optimizer: Any, x: Any, t: Any) -> None:
    usual(number, model, optimizer, x, t)
    if number > 2:
        optimizer.update()


def passes_twice(number: int, model: Net, optimizer: Any, x: Any, t: Any) -> None:
    model.cleargrads()
    for half in (slice(128), slice(128, None)):
        F.softmax_cross_entropy(model(x[half]), t[half]).backward()
    optimizer.update()


def refills(number: int, model: Net, optimizer: Any, x: Any, t: Any) -> None:
    """Fill the next batch into the buffer of the last one, before its backward pass."""
    model.cleargrads()
    loss = F.softmax_cross_entropy(model(x), t)
    x[...] = 0
    loss.backward()
    optimizer.update()


def tied() -> Net:
    model = Net()
    model.layers[3].W = model.layers[2].W
    return model


def on_one_array() -> Net:
    model = Net()
    model.layers[3].W.array = model.layers[2].W.array
    return model


def masking() -> Net:
    def mask(h: Any) -> None:
        h.array[h.array > 0.5] = 0

    return Net(mask)


def trained(make: Callable[[], Any], update: Update, options: dict[str, Any] | None) -> tuple[list[Any], Any]:
    """Train by seed; return the parameters after each step, and the scheduler."""
    np.random.seed(0)
    draw, model = np.random.default_rng(1), make()
    optimizer = chainer.optimizers.MomentumSGD(0.1).setup(model)
    scheduler = None if options is None else stowplan.chainer.Scheduler(optimizer, **options)
    after = []
    for number in range(STEPS):
        x, t = draw.standard_normal((256, 64), np.float32), draw.integers(0, 10, 256, np.int32)
        with contextlib.nullcontext() if scheduler is None else scheduler.step():
            update(number, model, optimizer, x, t)
        if scheduler is not None:
            scheduler.wait()
        after.append([param.array.copy() for param in model.params()])
    return after, scheduler


def assert_same(make: Callable[[], Any], update: Update, options: dict[str, Any]) -> Any:
    plain, _ = trained(make, update, None)
    ours, scheduler = trained(make, update, options)
    for number, (one, other) in enumerate(zip(plain, ours, strict=True)):
        assert all(map(np.array_equal, one, other)), number
    return scheduler


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("make", [tied, on_one_array])
def test_parameters_that_are_one(make: Callable[[], Net], options: dict[str, Any]) -> None:
    assert "share" in assert_same(make, usual, options).stats.keeps_gradients


@pytest.mark.parametrize("options", [WAYS["lean"], WAYS["budget"]], ids=["lean", "budget"])
def test_gradients_summed_over_steps(options: dict[str, Any]) -> None:
    assert assert_same(Net, accumulates, options).stats.keeps_gradients == BY_HAND


def test_what_outlives_a_step_without_an_update_counts() -> None:
    """The state, which is made later, and the gradients, which wait for it."""
    after, scheduler = trained(Net, accumulates, {"budget": "1 GiB"})
    parameters = sum(array.nbytes for array in after[-1])
    assert parameters * 3 <= scheduler.stats.retained_bytes <= parameters * 3 + 64


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("update", [skips, updates_twice])
def test_a_late_change_of_the_updates(update: Update, options: dict[str, Any]) -> None:
    assert_same(Net, update, options)


@pytest.mark.parametrize(
    ("update", "what"),
    [
        (skips, "without optimizer.update"),
        (updates_twice, "the gradient of the parameter W is gone"),
        (passes_twice, "a second backward pass before optimizer.update"),
    ],
)
def test_a_loop_that_breaks_its_promise_is_refused(update: Update, what: str) -> None:
    with pytest.raises(ScheduleError, match=what):
        trained(Net, update, {"early_updates": True})


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_a_loop_that_keeps_its_promise_updates_early(options: dict[str, Any]) -> None:
    assert assert_same(Net, usual, {"early_updates": True, **options}).stats.keeps_gradients is None


@pytest.fixture(scope="module")
def least() -> int:
    with pytest.raises(BudgetError) as caught:
        trained(Net, usual, {"budget": 1000})
    assert caught.value.least is not None
    return caught.value.least


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize(
    ("make", "update", "what"),
    [
        (masking, usual, "the program writes on an array"),
        (Net, refills, "the program writes on an array"),
        (lambda: Net(cuts=True), usual, "a variable is cut off"),
    ],
)
def test_no_operator_runs_again_on_what_has_changed(
    make: Callable[[], Net], update: Update, what: str, swap: bool, least: int
) -> None:
    options = {"budget": int(1.2 * least), "swap": swap}
    with pytest.warns(RuntimeWarning, match=what):
        stats = assert_same(make, update, options).stats
    assert stats.keeps_graph.startswith(what)
    assert stats.recomputed == 0


@pytest.mark.parametrize("share", [1.02, 1.2, 2])
def test_a_variable_that_is_cut_off_late(share: float, least: int) -> None:
    def cut_late(number: int, model: Net, optimizer: Any, x: Any, t: Any) -> None:
        model.cuts = number > 5
        usual(number, model, optimizer, x, t)

    assert assert_same(Net, cut_late, {"budget": int(share * least)}).stats.recomputed > 0


def test_no_operator_goes_from_one_backward_pass_to_another() -> None:
    """The program runs what stands between them: such a schedule would keep to its budget on paper alone."""

    def make() -> Any:
        return chainer.Sequential(L.Linear(64, 64), F.relu).repeat(8)

    with pytest.raises(BudgetError) as caught:
        trained(make, passes_twice, {"budget": 1000, "time_limit": 2.0})
    pool = stowplan.NumpyPool()
    budget = int(1.02 * (caught.value.least or 0))
    scheduler = assert_same(make, passes_twice, {"pool": pool, "budget": budget, "time_limit": 2.0})
    assert scheduler.stats.recomputed > 0
    for solution in scheduler.solutions:
        assert (np.diff(solution.schedule.order) > 0).all()
    pool.wait()
    assert pool.plan().arena_bytes <= 1.02 * scheduler.stats.planned_peak
