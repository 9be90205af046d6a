"""Kinds of programs with a loop by hand: what stands between ``backward()`` and ``update()``."""

from __future__ import annotations

import io
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import numpy as np
from chainer import optimizer_hooks

from .programs import Program, by_hand, whole

# --- gradients --------------------------------------------------------------------------------------------------------


@by_hand()
def nothing(p: Program) -> None:
    pass


@by_hand()
def clips_late(p: Program) -> None:
    for param in p.params() if p.late else ():
        np.clip(param.grad, -1e-3, 1e-3, out=param.grad)


@by_hand()
def reads_norms(p: Program) -> None:
    p.say(*(np.linalg.norm(param.grad) for param in p.params()))


# --- parameters -------------------------------------------------------------------------------------------------------


@by_hand()
def decays_weights(p: Program) -> None:
    for param in p.params():
        param.array *= np.float32(0.99)


# --- the optimizer ----------------------------------------------------------------------------------------------------


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
def runs_backward_twice_late(p: Program) -> None:
    if p.late:
        p.loss().backward()


@whole(refused="second backward pass|would run again")
def runs_a_graph_twice_late(p: Program) -> None:
    loss = p.backward()
    if p.late:
        loss.backward()
    p.optimizer.update()


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
