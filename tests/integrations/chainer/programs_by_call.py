"""Kinds of programs with ``optimizer.update(lossfun)``: what changes before it, and in it."""

from __future__ import annotations

import io
from contextlib import nullcontext
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
from chainer import link_hooks, optimizer_hooks, optimizers
from chainer.functions.pooling.max_pooling_nd import MaxPoolingND

from .programs import CLASSES, UNITS, Net, Program, by_call, inside, whole

GONE = "the gradient of the parameter .* is gone"
WRITES = "the program writes on an array"

# --- before the call --------------------------------------------------------------------------------------------------


@by_call()
def nothing(p: Program) -> None:
    pass


@by_call()
def freezes_late(p: Program) -> None:
    if p.k == 6:
        p.model.first.disable_update()
        p.model.norm.disable_update()


@by_call()
def adds_clipping_late(p: Program) -> None:
    if p.k == 6:
        p.optimizer.add_hook(optimizer_hooks.GradientClipping(1e-3))


@by_call(prepare=lambda p: p.model.last.b.initialize(CLASSES) if p.model.last.b.array is None else None)
def has_a_rule_s_hook(p: Program) -> None:
    if p.k == 0:
        rule, other = p.model.last.b.update_rule, p.model.first.W  # which Chainer updates before
        rule.add_hook(lambda _, param: p.say(param.grad, other.array), name="says")


@by_call()
def a_parameter_is_replaced_late(p: Program) -> None:
    if p.k == 6:
        with p.model.last.init_scope():
            p.model.last.W = chainer.Parameter(p.model.last.W.array * np.float32(0.5))
        p.optimizer.setup(p.model)


@by_call()
def the_optimizer_is_exchanged_late(p: Program) -> None:
    if p.k == 6:
        p.optimizer = optimizers.Adam().setup(p.model)


@by_call()
def loads_an_older_state_late(p: Program) -> None:
    if p.k == 4:
        p.kept["model"], p.kept["optimizer"] = io.BytesIO(), io.BytesIO()
        chainer.serializers.save_npz(p.kept["model"], p.model)
        chainer.serializers.save_npz(p.kept["optimizer"], p.optimizer)
    if p.k == 7:
        for name, one in (("model", p.model), ("optimizer", p.optimizer)):
            p.kept[name].seek(0)
            chainer.serializers.load_npz(p.kept[name], one)


@by_call()
def scales_the_loss_late(p: Program) -> None:
    if p.k == 6:
        p.optimizer.loss_scaling(scale=16.0)


@by_call()
def does_not_clear_gradients(p: Program) -> None:
    p.optimizer._use_cleargrads = False


@by_call()
def sums_lazily_late(p: Program) -> None:
    chainer.config.lazy_grad_sum = p.late


@by_call(model=lambda: _tied(Net()))
def weights_are_tied(p: Program) -> None:
    pass


def _tied(model: Any) -> Any:
    model.layers[3].W = model.layers[2].W
    return model


@by_call()
def parameters_become_views_late(p: Program) -> None:
    if p.k == 6:
        flat = np.concatenate([layer.W.array.ravel() for layer in p.model.layers])
        for number, layer in enumerate(p.model.layers):
            layer.W.array = flat[number * UNITS**2 : (number + 1) * UNITS**2].reshape(UNITS, UNITS)


@by_call(
    prepare=lambda p: [
        layer.add_hook(link_hooks.SpectralNormalization()) for layer in list(p.model.layers)[:2]
    ]
)
def spectral_normalization(p: Program) -> None:
    pass


class _Careful(optimizers.MomentumSGD):  # type: ignore[misc]
    def call_hooks(self, timing: str = "pre") -> None:
        for param in self.target.params():
            np.clip(param.grad, -1e-3, 1e-3, out=param.grad)
        super().call_hooks(timing)


@by_call(optimizer=lambda: _Careful(0.05))
def hooks_of_its_own(p: Program) -> None:
    pass


@by_call()
def update_is_wrapped(p: Program) -> None:
    if p.k == 0:
        update = p.optimizer.update

        def wrapped(*args: Any) -> None:
            update(*args)
            p.say(*(param.grad for param in p.params()))

        p.optimizer.update = wrapped


@by_call()
def a_rule_is_changed_late(p: Program) -> None:
    if p.k == 6:
        rule = p.model.last.W.update_rule
        rule.update_core = lambda param: p.say(param.grad)


@by_call(optimizer=optimizers.Adam)
def rules_are_shared(p: Program) -> None:
    for layer in p.model.layers:
        layer.W.update_rule = p.model.layers[0].W.update_rule


@by_call()
def states_are_shared_late(p: Program) -> None:
    for layer in p.model.layers if p.k == 6 else ():
        layer.W.update_rule.state["v"] = p.model.layers[0].W.update_rule.state["v"]


class _Decays(chainer.optimizer.Hyperparameter):  # type: ignore[misc]
    lr = property(lambda self: vars(self).update(read=self.read + 1) or 0.1 / self.read, lambda *_: None)


@by_call()
def a_hyperparameter_class_of_its_own(p: Program) -> None:
    for param in p.params() if p.k == 0 else ():
        param.update_rule.hyperparam = rates = p.kept.setdefault("rates", _Decays())
        rates.read, rates.momentum = 1, 0.9


class _Mine(chainer.Parameter):  # type: ignore[misc]
    def update(self) -> None:
        self.grad *= np.float32(0.5)
        super().update()


@by_call(prepare=lambda p: setattr(p.model.layers[0].W, "__class__", _Mine))
def a_parameter_class_of_its_own(p: Program) -> None:
    pass


class _Hook(chainer.FunctionHook):  # type: ignore[misc]
    """Looks at a parameter in the backward pass, and changes gradients."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self.program.say(self.program.model.last.b, *(array is None or array for array in in_data))


@whole()
def a_function_hook_of_its_own_late(p: Program) -> None:
    with _Hook(p) if p.late else nullcontext():
        p.optimizer.update(p.loss)


# --- in the loss function ---------------------------------------------------------------------------------------------


@inside()
def the_learning_rate_is_set(p: Program, y: Any) -> None:
    p.optimizer.lr = 0.1 / (p.k + 1)


@inside()
def another_loss_late(p: Program, y: Any) -> Any:
    return F.sum(y * y) * np.float32(1e-3) if p.late else None


@inside()
def a_weight_s_array_is_an_input(p: Program, y: Any) -> Any:
    """Stop-gradient: an operator reads a parameter's memory, and has no edge to it."""
    h = F.tanh(F.linear(y, p.model.last.W.array.T.copy()))
    return F.softmax_cross_entropy(F.linear(h, p.model.last.W.array), p.t)


@inside()
def a_backward_pass(p: Program, y: Any) -> None:
    p.model.cleargrads()
    F.sum(y * y).backward()
    p.say(p.model.last.b.grad)


@inside(refused="second backward pass|would run again")
def a_backward_pass_late(p: Program, y: Any) -> None:
    if p.late:
        a_backward_pass(p, y)


@inside()
def another_network_is_trained(p: Program, y: Any) -> None:
    if not p.more:
        p.more.append(L.Linear(CLASSES, 3))
        p.more.append(optimizers.SGD().setup(p.more[0]))
    p.more[1].update(lambda: F.sum(p.more[0](y.array) ** 2))


@inside()
def a_forgotten_part(p: Program, y: Any) -> Any:
    return F.softmax_cross_entropy(F.forget(lambda h: F.tanh(p.model.last(h)), p.model.features(p.x)), p.t)


@inside()
def a_gradient_penalty(p: Program, y: Any) -> Any:
    x = chainer.Variable(p.x)
    (slope,) = chainer.grad([F.sum(F.tanh(p.model.first(x)))], [x], enable_double_backprop=True)
    return F.softmax_cross_entropy(y, p.t) + F.sum(slope * slope) * np.float32(1e-3)


@inside()
def the_batch_is_refilled(p: Program, y: Any) -> None:
    p.x[...] = 0


@inside(refused=WRITES)
def the_batch_is_refilled_late(p: Program, y: Any) -> None:
    if p.late:
        p.x[...] = p.x[::-1].copy()


class _Reads(chainer.FunctionNode):  # type: ignore[misc]
    """A function whose backward step reads a parameter that is no input of it."""

    def __init__(self, link: Any) -> None:
        self.link = link

    def forward(self, inputs: Any) -> Any:
        return (inputs[0] @ self.link.W.array.T,)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        return (F.matmul(gradients[0], chainer.Variable(self.link.W.array)),)


@inside()
def a_function_reads_a_weight(p: Program, y: Any) -> Any:
    h = F.tanh(p.model.last(p.model.features(p.x)))
    hidden = F.linear(h, p.model.last.W.array.T.copy())
    return F.softmax_cross_entropy(_Reads(p.model.last).apply((hidden,))[0] + y, p.t)


@inside()
def a_weight_is_replaced(p: Program, y: Any) -> None:
    p.model.layers[1].W.array = p.model.layers[1].W.array * np.float32(0.9)


class _Peeks(chainer.FunctionNode):  # type: ignore[misc]
    """Reads in its backward step what others retain: its input's array, and its output's."""

    def forward(self, inputs: Any) -> Any:
        return (inputs[0] * np.float32(2),)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        x, y = self.inputs[0].data, self.outputs[0]().data
        return (gradients[0] if x is None else gradients[0] * (x + y),)


@inside()
def a_function_reads_what_others_retain(p: Program, y: Any) -> Any:
    h = y + 1
    return F.softmax_cross_entropy(h * _Peeks().apply((h,))[0], p.t)


@inside()
def pooling_s_indexes_are_used(p: Program, y: Any) -> Any:
    """As in SegNet: what a function hides is read from it, and used in the forward pass."""
    pool = MaxPoolingND(2, 2, 2, 0, True, True)
    image = F.reshape(p.model.features(p.x), (-1, 2, 4, 4))
    small = pool.apply((image,))[0]
    large = F.upsampling_2d(F.tanh(small), pool.indexes, 2, 2, outsize=(4, 4))
    return F.softmax_cross_entropy(p.model.last(F.reshape(large, (-1, UNITS))), p.t)


# --- activations that the program writes on ---------------------------------------------------------------------------


def _mask(h: Any) -> None:
    h.array[h.array > 0.5] = 0


def _replace(h: Any) -> None:
    h.array = h.array * np.float32(0.5)


@by_call()
def activations_are_masked(p: Program) -> None:
    p.model.at = _mask


@by_call(refused=WRITES)
def activations_are_masked_late(p: Program) -> None:
    if p.late:
        p.model.at = _mask


@by_call(refused=WRITES)
def an_activation_is_replaced_late(p: Program) -> None:
    if p.late:
        p.model.at = _replace
