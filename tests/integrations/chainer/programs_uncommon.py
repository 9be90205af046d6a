"""Kinds of programs out of the common: errors that are caught, several models, states, and graphs."""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
from chainer import function_hooks, link_hooks, optimizers

from .programs import CLASSES, LATE, UNITS, Bomb, Net, Program, after_call, inside, whole

# --- errors that the program catches ----------------------------------------------------------------------------------


@whole()
def a_loss_function_fails(p: Program) -> None:
    def loss(*_: Any) -> Any:
        found = p.loss()
        if p.k in (1, 7):
            raise ArithmeticError("a spike")
        return found

    with p.says(ArithmeticError):
        p.optimizer.update(loss)


@whole()
def a_backward_step_fails(p: Program) -> None:
    p.kept["error"] = ArithmeticError if p.k in (1, 7) else None

    def loss(*_: Any) -> Any:
        h = F.tanh(p.model.first(p.x))
        h = Bomb(p.kept["error"]).apply((h,))[0]
        for layer in p.model.layers:
            h = F.tanh(layer(h))
        return F.softmax_cross_entropy(p.model.last(h), p.t)

    with p.says(ArithmeticError):
        p.optimizer.update(loss)


@whole()
def debug_mode(p: Program) -> None:
    with chainer.using_config("debug", True):
        x = p.x.copy()
        if p.k == 7:
            x[0] = np.nan
        with p.says(RuntimeError):
            p.optimizer.update(lambda: F.softmax_cross_entropy(p.model(x), p.t))


# --- several models, passes and updates -------------------------------------------------------------------------------


def _two(p: Program) -> None:
    p.more = [Net(), optimizers.SGD(0.05)]
    p.more[1].setup(p.more[0])


def _both(p: Program) -> list[Any]:
    return [p.optimizer, p.more[1]]


@whole(prepare=_two, optimizers=_both)
def two_models(p: Program) -> None:
    p.optimizer.update(p.loss)
    p.more[1].update(lambda: F.softmax_cross_entropy(p.more[0](p.x), p.t))


@whole(prepare=_two, optimizers=_both)
def a_gan_with_a_graph_for_each_loss(p: Program) -> None:
    with chainer.no_backprop_mode():
        fake = p.model.layers[0](p.x)
    p.more[1].update(lambda: F.average(p.more[0](p.x) ** 2) - F.average(p.more[0](fake.array)))
    p.optimizer.update(lambda: F.average(p.more[0](p.model.layers[0](p.x))))


@whole(prepare=_two, optimizers=_both)
def a_gan_with_one_graph(p: Program) -> None:
    fake = p.more[0](p.model.layers[0](p.x))
    p.more[1].update(lambda: F.average(fake**2))
    p.optimizer.update(lambda: F.average(F.tanh(fake)))


@whole()
def one_model_is_updated_twice(p: Program) -> None:
    for half in (slice(0, None, 2), slice(1, None, 2)):
        x, t = p.x[half].copy(), p.t[half].copy()
        p.optimizer.update(lambda x=x, t=t: F.softmax_cross_entropy(p.model(x), t))


@whole(
    prepare=lambda p: p.more.append(optimizers.SGD(0.01).setup(p.model.last)),
    optimizers=lambda p: [p.optimizer, *p.more],
)
def two_optimizers_of_one_model(p: Program) -> None:
    p.optimizer.update(p.loss)
    p.backward()
    p.more[0].update()


@whole(optimizer=optimizers.Adam)
def an_update_of_a_part(p: Program) -> None:
    if p.k == 0:
        p.loss()
        p.optimizer.setup(p.model.last)
    p.model.cleargrads()
    p.optimizer.update(p.loss)


# --- states -----------------------------------------------------------------------------------------------------------


class _BothWays(chainer.Chain):  # type: ignore[misc]
    """Views of one array: a schedule has those that nothing reads any more, as long as it has another one."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.cell, self.last = L.NStepBiGRU(1, UNITS, UNITS, 0.2), L.Linear(None, CLASSES)

    def forward(self, x: Any) -> Any:
        _, words = self.cell(None, [np.tile(row, (2, 1)) for row in x])
        return self.last(F.concat([F.expand_dims(one[0], 0) for one in words], 0))


@whole(model=_BothWays)
def sequences_are_read_both_ways(p: Program) -> None:
    p.optimizer.update(p.loss)


class _Code(chainer.Chain):  # type: ignore[misc]
    """A schedule runs what draws again, for its noise, when its output is read no more."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.mean, self.scale = L.Linear(UNITS), L.Linear(UNITS)
            self.mix, self.last = L.Linear(UNITS), L.Linear(CLASSES)

    def forward(self, x: Any) -> Any:
        h = F.gaussian(self.mean(x), F.clip(self.scale(x), -2.0, 2.0))
        for _ in range(4):
            h = F.tanh(self.mix(h)) + h
        return self.last(h)


@whole(model=_Code)
def a_code_is_drawn(p: Program) -> None:
    p.optimizer.update(p.loss)


# --- how a training begins --------------------------------------------------------------------------------------------


@whole(options={"early_updates": True})
def nothing_stands_between_as_was_promised(p: Program) -> None:
    p.backward()
    p.optimizer.update()


@whole(optimizer=optimizers.Adam, prepare=lambda p: [p.optimizer.update(p.loss) for _ in range(3)])
def a_training_is_gone_on_with(p: Program) -> None:
    p.optimizer.update(p.loss)


def _noisy(p: Program) -> None:
    p.kept["noisy"] = F.dropout(chainer.Variable(p.x))


@whole(prepare=_noisy, after=_noisy)
def passes_over_a_graph_from_outside_of_the_step(p: Program) -> None:
    p.model.cleargrads()
    for _ in range(1 + (p.k == LATE)):
        F.sum(F.tanh(p.model.first(p.kept["noisy"]))).backward()
    p.optimizer.update()


def _half() -> Any:
    with chainer.using_config("dtype", chainer.mixed16):
        return Net()


@whole(model=_half, prepare=lambda p: (p.optimizer.use_fp32_update(), p.optimizer.loss_scaling(scale=8)))
def half_precision(p: Program) -> None:
    with chainer.using_config("dtype", chainer.mixed16):
        p.optimizer.update(lambda: F.softmax_cross_entropy(p.model(p.x.astype(np.float16)), p.t))


# --- graphs -----------------------------------------------------------------------------------------------------------


@whole()
def graphs_first_then_their_passes(p: Program) -> None:
    """The second pass reads activations of the parameters of before."""
    losses = [F.softmax_cross_entropy(p.model(p.x[n::2].copy()), p.t[n::2].copy()) for n in (0, 1)]
    for loss in losses:
        p.backward(loss)
        p.optimizer.update()


def _gated(p: Program, y: Any, cut: bool) -> Any:
    z = F.sigmoid(y)
    h = y * z
    if cut:
        z.unchain()
    return F.softmax_cross_entropy(h, p.t)


@inside()
def a_gate_is_cut_off(p: Program, y: Any) -> Any:
    return _gated(p, y, cut=True)


@inside()
def a_gate_is_cut_off_late(p: Program, y: Any) -> Any:
    return _gated(p, y, cut=p.late)


@inside()
def arrays_from_outside_are_read_in_the_forward_pass_alone(p: Program, y: Any) -> Any:
    h = p.model.features(p.x)
    for _ in range(3):
        h = F.sigmoid(F.where(np.random.random(h.shape) < 0.5, h, np.full(h.shape, -1, np.float32)))
    return F.softmax_cross_entropy(y, p.t) + F.sum(h) * np.float32(1e-3)


# --- hooks, states ----------------------------------------------------------------------------------------------------


@whole()
def hooks_that_measure_time(p: Program) -> None:
    with function_hooks.TimerHook() as functions, link_hooks.TimerHook() as links:
        p.optimizer.update(p.loss)
    p.say(*(len(name) for name in functions.summary()), len(links.call_history))


@after_call()
def the_optimizer_s_state_is_held_and_written(p: Program) -> None:
    p.kept.setdefault("state", p.model.last.W.update_rule.state)["v"] *= np.float32(0.5)
