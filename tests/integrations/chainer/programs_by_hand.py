"""Kinds of programs with a loop by hand: what stands between ``backward()`` and ``update()``."""

from __future__ import annotations

import copy
import io
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import numpy as np
from chainer import optimizer_hooks

from .programs import Net, Program, by_hand, whole

# --- gradients --------------------------------------------------------------------------------------------------------


@by_hand()
def nothing(p: Program) -> None:
    pass


@by_hand()
def clips(p: Program) -> None:
    for param in p.params():
        np.clip(param.grad, -1e-3, 1e-3, out=param.grad)


@by_hand()
def clips_late(p: Program) -> None:
    if p.late:
        clips(p)


@by_hand()
def sets_one(p: Program) -> None:
    p.model.last.b.grad = np.full_like(p.model.last.b.array, 0.1)


@by_hand()
def clears_a_layer(p: Program) -> None:
    p.model.first.cleargrads()


@by_hand()
def reads_norms(p: Program) -> None:
    p.say(*(np.linalg.norm(param.grad) for param in p.params()))


# --- parameters -------------------------------------------------------------------------------------------------------


@by_hand()
def decays_weights(p: Program) -> None:
    for param in p.params():
        param.array *= np.float32(0.99)


@whole()
def binaryconnect(p: Program) -> None:
    back = [param.array.copy() for param in p.params() if param.array is not None]
    known = [param for param in p.params() if param.array is not None]
    for param in known:
        param.array[...] = np.sign(param.array) * np.float32(0.1)
    p.backward()
    for param, array in zip(known, back, strict=True):
        param.array[...] = array
    p.optimizer.update()


@whole()
def sharpness_aware(p: Program) -> None:
    """Two passes, the second one of perturbed weights."""
    p.backward()
    moved = [(param, np.float32(0.01) * param.grad) for param in p.params()]
    for param, step in moved:
        param.array += step
    p.backward()
    for param, step in moved:
        param.array -= step
    p.optimizer.update()


@by_hand()
def updates_one_parameter_itself(p: Program) -> None:
    p.model.last.W.update()


# --- the optimizer ----------------------------------------------------------------------------------------------------


@by_hand()
def learning_rate(p: Program) -> None:
    p.optimizer.lr = 0.1 / (p.k + 1)


@by_hand()
def learning_rate_of_one_parameter(p: Program) -> None:
    p.model.last.W.update_rule.hyperparam.lr = 0.01 * p.k


@by_hand()
def disables_in_turns(p: Program) -> None:
    (p.model.first.disable_update if p.k % 2 else p.model.first.enable_update)()


@by_hand()
def adds_a_hook_late(p: Program) -> None:
    if p.k == 6:
        p.optimizer.add_hook(optimizer_hooks.WeightDecay(0.1))


@whole()
def skips_spikes(p: Program) -> None:
    loss = p.backward()
    if p.k not in (1, 6):
        p.optimizer.update()
    p.say(loss)


@by_hand()
def updates_twice(p: Program) -> None:
    p.optimizer.update()


@whole()
def sums_two_passes_late(p: Program) -> None:
    p.model.cleargrads()
    for half in (slice(0, None, 2), slice(1, None, 2)) if p.late else (slice(None),):
        F.softmax_cross_entropy(p.model(p.x[half].copy()), p.t[half].copy()).backward()
    p.optimizer.update()


@whole()
def sums_three_steps(p: Program) -> None:
    if p.k % 3 == 0:
        p.model.cleargrads()
    p.loss().backward()
    if p.k % 3 == 2:
        p.optimizer.update()


# --- what else a program does between them ----------------------------------------------------------------------------


@by_hand()
def evaluates(p: Program) -> None:
    with chainer.no_backprop_mode(), chainer.using_config("train", False):
        p.say(p.model(p.x[:8].copy()))


@by_hand()
def evaluates_with_a_graph_late(p: Program) -> None:
    if p.late:
        p.say(p.model(p.x[:8].copy()))


@by_hand()
def loads_late(p: Program) -> None:
    if p.k == 3:
        _save(p)
    if p.k == 7:
        chainer.serializers.load_npz(io.BytesIO(p.kept["saved"]), p.model)


def _save(p: Program) -> None:
    file = io.BytesIO()
    chainer.serializers.save_npz(file, p.model)
    p.kept["saved"] = file.getvalue()


@by_hand()
def copies_late(p: Program) -> None:
    if p.late:
        twin = copy.deepcopy(p.model)
        p.say(*(param.grad for param in twin.params()))


@by_hand()
def runs_backward_twice_late(p: Program) -> None:
    if p.late:
        p.loss().backward()


@whole(refused="second backward pass|would run again")
def runs_a_graph_twice_late(p: Program) -> None:
    loss = p.backward()
    if p.late:
        loss.backward()
    p.optimizer.update()


def _gradient_of_the_batch(p: Program, asks: bool) -> None:
    x = chainer.Variable(p.x)
    loss = F.softmax_cross_entropy(p.model(x), p.t)
    p.backward(loss)
    p.say(x.grad)
    if asks:
        p.say(*chainer.grad([loss], [x]))
    p.optimizer.update()


@whole(refused="second backward pass|would run again")
def asks_for_a_gradient_of_the_batch_late(p: Program) -> None:
    _gradient_of_the_batch(p, p.late)


@whole()
def retains_gradients_late(p: Program) -> None:
    h = p.model.features(p.x)
    loss = F.softmax_cross_entropy(p.model.last(h), p.t)
    p.model.cleargrads()
    loss.backward(retain_grad=p.late)
    if p.late:
        p.say(h.grad)
    p.optimizer.update()


def _loss_with_nodes(p: Program) -> Any:
    h = p.model.features(p.x)
    nodes = [h.node, h.node.creator_node.inputs[0]]
    loss = F.softmax_cross_entropy(p.model.last(h), p.t)
    return loss, nodes


@whole()
def keeps_nodes(p: Program) -> None:
    loss, nodes = _loss_with_nodes(p)
    p.backward(loss)
    p.say(*(node.data for node in nodes))
    p.optimizer.update()
    p.say(*(node.data for node in nodes))


@whole()
def reads_a_mask(p: Program) -> None:
    """What a function of Chainer's has drawn, from the graph."""
    h = p.model.features(p.x)
    creator = h.creator_node
    p.say(creator.mask)
    loss = F.softmax_cross_entropy(p.model.last(h), p.t)
    p.backward(loss)
    p.optimizer.update()


@whole(model=lambda: Net(ratio=0.0))
def moves_to_the_same_device(p: Program) -> None:
    p.backward()
    p.model.to_cpu()
    p.optimizer.update()
