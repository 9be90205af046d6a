"""What is out of the common under a schedule: two passes, double backprop, two models, exceptions."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest
from chainer import function_node

from stowplan.chainer import Scheduler, seams
from stowplan.chainer.rerun import trust
from stowplan.errors import ScheduleError

from .training_runs import (
    Everything,
    RandomScheduler,
    SparingScheduler,
    alike,
    batches,
    fingerprint,
    plain,
    train,
)


class TwoLosses(Everything):
    """One graph that two backward passes come by."""

    def forward(self, x: Any, t: Any) -> Any:
        super().forward(x, t)
        side = F.sum(self.y * self.y) * 1e-3
        self.cleargrads()
        side.backward()
        return F.softmax_cross_entropy(self.y, t)


class Forgetful(Everything):
    def forward(self, x: Any, t: Any) -> Any:
        h = F.forget(lambda x: F.relu(self.b1(self.c1(x))), x)
        return F.sum(self.c3(h) ** 2) + super().forward(x, t)


class Penalized(Everything):
    """A gradient penalty: double backprop."""

    def forward(self, x: Any, t: Any) -> Any:
        image = chainer.Variable(x)
        y = F.sum(F.tanh(self.c1(image)))
        (gradient,) = chainer.grad([y], [image], enable_double_backprop=True)
        return super().forward(x, t) + F.sum(gradient * gradient)


class Truncated(Everything):
    """The loss of a part whose history was cut off."""

    def forward(self, x: Any, t: Any) -> Any:
        h = F.relu(self.c1(x))
        h.unchain_backward()
        return super().forward(x, t) + F.sum(self.c2(h) ** 2)


class Masked(Everything):
    """Arrays from outside that nothing but a forward operator reads."""

    def forward(self, x: Any, t: Any) -> Any:
        h = self.c1(x)
        for _ in range(3):
            mask = np.random.random(h.shape) < 0.5
            h = F.sigmoid(F.where(mask, h, np.full(h.shape, -1, np.float32)))
        return super().forward(x, t) + F.sum(h)


@pytest.mark.parametrize("network", [TwoLosses, Forgetful, Penalized, Truncated, Masked])
def test_what_is_out_of_the_common_is_right(network: Any) -> None:
    scheduler = alike(Scheduler, network=network)
    if network is TwoLosses:
        assert "two backward passes" in str(scheduler.stats.keeps_graph)
    if network is Forgetful:
        assert "backward pass of its own" in str(scheduler.stats.keeps_gradients)
    sparing = alike(lambda opt: RandomScheduler(opt, 1, 0.6), SparingScheduler, network=network)
    assert sparing.stats.recomputed > 0 or network is TwoLosses


class Departing(Everything):
    """After the fifth step, an operator more at the end, by when the schedule has evicted what earlier ones hide."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, x: Any, t: Any) -> Any:
        self.steps += 1
        h = F.dropout(F.local_response_normalization(F.max_pooling_2d(self.c1(x), 2)), 0.3)
        if self.steps > 5:
            h = F.tanh(h)
        return F.softmax_cross_entropy(self.fc(h), t)


def test_hidden_arrays_come_back_in_a_step_that_departs_from_its_schedule() -> None:
    data = batches(7, 16)
    for seed in range(2):
        scheduler = alike(
            lambda opt, seed=seed: RandomScheduler(opt, seed, 1.0, swap=True), network=Departing, data=data
        )
        assert scheduler.stats.departed == 2


def test_two_passes_over_a_graph_from_outside_of_the_step_are_chainer_s() -> None:
    def run(schedule: Any) -> str:
        np.random.seed(0)
        net = Everything()
        opt = chainer.optimizers.Adam().setup(net)
        scheduler = schedule(opt)
        for number, (x, _) in enumerate(batches(4)):
            noisy = F.dropout(chainer.Variable(x))
            with scheduler.step() if scheduler else nullcontext():
                net.cleargrads()
                for _ in range(1 + (number == 3)):
                    loss = F.sum(F.tanh(net.c1(noisy)))
                    loss.backward()
                    del loss
                opt.update()
        return fingerprint(net, opt)

    assert run(Scheduler) == run(plain)


@trust
class Drifting(function_node.FunctionNode):
    """Declared to give the same again, and does not."""

    calls = 0

    def forward(self, inputs: Any) -> Any:
        Drifting.calls += 1
        return (inputs[0] * np.float32(Drifting.calls),)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        return (gradients[0],)


def test_what_a_trial_found_not_to_repeat_does_not_run_again() -> None:
    net = L.Linear(432, 300)
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = SparingScheduler(opt)
    for number, (x, _) in enumerate(batches(2)):
        refused = pytest.raises(ScheduleError, match="Drifting would run again, and may not give the same")
        with refused if number else nullcontext(), scheduler.step():
            h = Drifting().apply((net(x),))[0]
            loss = F.sum(h * h)
            del h
            for _ in range(1 + number):
                loss.backward()


class Unending(chainer.Chain):
    """A state that goes from step to step and is never cut off: each backward pass runs through all steps so far."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.first = L.Linear(None, 300)
            self.state = L.Linear(300, 300)
            self.last = L.Linear(300, 10)
        self.h: Any = None

    def forward(self, x: Any, t: Any) -> Any:
        h = F.dropout(F.tanh(self.first(x)), 0.2)
        self.h = h if self.h is None else F.tanh(self.state(self.h) + h)
        return F.softmax_cross_entropy(self.last(self.h), t)


@pytest.mark.parametrize("budget", [None, "1 GiB"])
def test_graphs_that_reach_into_earlier_steps_are_chainer_s(budget: Any) -> None:
    scheduler = alike(lambda opt: Scheduler(opt, budget=budget), network=Unending, steps=7)
    assert "an earlier step" in str(scheduler.stats.keeps_graph)


GONE = r"reaches into an earlier step, where the arrays of .* are gone"


def test_arrays_of_an_earlier_step_that_are_gone_are_an_error() -> None:
    with pytest.raises(ScheduleError, match=GONE):
        train(lambda opt: Scheduler(opt, watch=False), network=Unending)


def test_arrays_that_an_earlier_step_dropped_before_any_backward_pass_are_an_error() -> None:
    net = Everything()
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = SparingScheduler(opt, watch=False)
    with scheduler.step():
        loss = net(*batches(1)[0])
    with pytest.raises(ScheduleError, match=GONE), scheduler.step():
        loss.backward()


def test_gradient_accumulation_is_left_to_chainer() -> None:
    def run(scheduled: bool) -> str:
        np.random.seed(0)
        net = Everything()
        opt = chainer.optimizers.MomentumSGD().setup(net)
        scheduler = Scheduler(opt) if scheduled else None
        data = batches(12)
        for i in range(0, 12, 2):
            with scheduler.step() if scheduler else nullcontext():
                net.cleargrads()
                for x, t in data[i : i + 2]:
                    loss = net(x, t)
                    loss.backward()
                    del loss
                opt.update()
        return fingerprint(net, opt)

    assert run(True) == run(False)


class Failing(Everything):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any, t: Any) -> Any:
        self.calls += 1
        loss = super().forward(x, t)
        return Bomb().apply((loss,))[0] if self.calls == 4 else loss


class Bomb(function_node.FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return (inputs[0].copy(),)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        raise KeyboardInterrupt


def test_an_exception_in_the_middle_leaves_chainer_as_it_was() -> None:
    np.random.seed(0)
    net = Failing()
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = Scheduler(opt)
    gc.collect()  # schedulers of other tests
    for number, (x, t) in enumerate(batches(6), 1):
        if number == 4:
            with pytest.raises(KeyboardInterrupt), scheduler.step():
                opt.update(net, x, t)
        else:
            with scheduler.step():
                opt.update(net, x, t)
        assert function_node.FunctionNode.apply is seams.apply
        assert chainer._backprop._backprop_to_all is seams.backprop_to_all
        assert chainer._backprop_utils.backprop_step is seams.backprop_step
        assert "update" not in vars(opt)
    assert scheduler.stats.lean == 4
    assert not {"grad", "grad_var"} & set(vars(chainer.Parameter))


def test_second_passes_after_the_updates_are_errors_that_say_so() -> None:
    np.random.seed(0)
    net = Everything()
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = Scheduler(opt)
    kept = []

    def loss(x: Any, t: Any) -> Any:
        kept[:] = [net(x, t)]
        return kept[0]

    (x, t), *_ = batches(1)
    for _ in range(2):
        with scheduler.step():
            opt.update(loss, x, t)

    with scheduler.step():
        opt.update(loss, x, t)
        with pytest.raises(ScheduleError, match="leaves the step out"):
            kept[0].backward()
