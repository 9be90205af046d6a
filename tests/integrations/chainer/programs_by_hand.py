"""Kinds of programs with a loop by hand: what stands between ``backward()`` and ``update()``."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
from chainer import optimizer_hooks, optimizers

from .programs import CLASSES, UNITS, Net, Program, by_hand, whole

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
def clips_the_norm_late(p: Program) -> None:
    if p.late:
        norm = np.sqrt(sum((param.grad**2).sum() for param in p.params()))
        p.say(norm)
        for param in p.params():
            param.grad *= np.float32(0.01 / norm)


@by_hand()
def scales(p: Program) -> None:
    for param in p.params():
        param.grad = param.grad * np.float32(0.5)


@by_hand()
def draws_noise_late(p: Program) -> None:
    for param in p.params() if p.late else ():
        param.grad += np.random.normal(0, 1e-3, param.shape).astype(np.float32)


@by_hand()
def sets_one(p: Program) -> None:
    p.model.last.b.grad = np.full_like(p.model.last.b.array, 0.1)


@by_hand()
def sets_one_late(p: Program) -> None:
    if p.late:
        sets_one(p)


@by_hand()
def sets_a_gradient_variable_late(p: Program) -> None:
    if p.late:
        p.model.last.b.grad_var = chainer.Variable(np.full_like(p.model.last.b.array, 0.1))


@by_hand()
def clears_a_layer(p: Program) -> None:
    p.model.first.cleargrads()


@by_hand()
def clears_a_layer_late(p: Program) -> None:
    if p.late:
        p.model.first.cleargrads()


@by_hand()
def fills_zeros_late(p: Program) -> None:
    if p.late:
        p.model.layers[1].W.grad.fill(0)


@by_hand()
def zerograds_late(p: Program) -> None:
    if p.late:
        p.model.layers[0].zerograds()


@by_hand()
def reads_norms(p: Program) -> None:
    p.say(*(np.linalg.norm(param.grad) for param in p.params()))


@by_hand()
def reads_norms_late(p: Program) -> None:
    if p.late:
        reads_norms(p)


@by_hand()
def reads_gradient_variables_late(p: Program) -> None:
    for _, param in p.model.namedparams() if p.late else ():
        p.say(param.grad_var)


@by_hand()
def keeps_a_gradient_array(p: Program) -> None:
    p.kept["gradient"] = p.model.layers[2].W.grad
    p.say(p.kept["gradient"])


@by_hand()
def adds_a_replica_s_gradients(p: Program) -> None:
    replica = p.kept.setdefault("replica", p.model.copy())
    replica.cleargrads()
    F.softmax_cross_entropy(replica(p.x[::2].copy()), p.t[::2].copy()).backward()
    p.model.addgrads(replica)


@by_hand()
def gradients_of_a_part_by_grad(p: Program) -> None:
    x = chainer.Variable(p.x)
    (found,) = chainer.grad([F.sum(p.model.first(x) ** 2)], [x])
    p.say(found)


# --- parameters -------------------------------------------------------------------------------------------------------


@by_hand()
def decays_weights(p: Program) -> None:
    for param in p.params():
        param.array *= np.float32(0.99)


@by_hand()
def decays_weights_late(p: Program) -> None:
    if p.late:
        decays_weights(p)


@by_hand()
def replaces_arrays_late(p: Program) -> None:
    for param in p.params() if p.late else ():
        param.array = param.array * np.float32(0.99)


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


@by_hand()
def averages(p: Program) -> None:
    """An exponential moving average, of what is there before the update."""
    mean = p.kept.setdefault("mean", [param.array.copy() for param in p.params()])
    for one, param in zip(mean, p.params(), strict=True):
        one += np.float32(0.1) * (param.array - one)
    p.say(*mean)


@by_hand()
def averages_late(p: Program) -> None:
    if p.late:
        averages(p)


@by_hand()
def looks_ahead(p: Program) -> None:
    slow = p.kept.setdefault("slow", [param.array.copy() for param in p.params()])
    for one, param in zip(slow, p.params(), strict=True) if p.k % 3 == 2 else ():
        one += np.float32(0.5) * (param.array - one)
        param.array[...] = one


# --- the optimizer ----------------------------------------------------------------------------------------------------


@by_hand()
def learning_rate(p: Program) -> None:
    p.optimizer.lr = 0.1 / (p.k + 1)


@by_hand()
def learning_rate_late(p: Program) -> None:
    if p.late:
        p.optimizer.lr *= 0.5


@by_hand()
def learning_rate_of_one_parameter(p: Program) -> None:
    p.model.last.W.update_rule.hyperparam.lr = 0.01 * p.k


@by_hand(optimizer=optimizers.Adam)
def moments_of_adam(p: Program) -> None:
    p.optimizer.beta1 = 0.9 - 0.01 * p.k


@by_hand()
def disables_in_turns(p: Program) -> None:
    (p.model.first.disable_update if p.k % 2 else p.model.first.enable_update)()


@by_hand()
def disables_a_rule_late(p: Program) -> None:
    p.model.layers[3].W.update_rule.enabled = not p.late


@by_hand()
def adds_a_hook_late(p: Program) -> None:
    if p.k == 6:
        p.optimizer.add_hook(optimizer_hooks.WeightDecay(0.1))


@by_hand()
def adds_clipping_late(p: Program) -> None:
    if p.k == 6:
        p.optimizer.add_hook(optimizer_hooks.GradientClipping(1e-3))


@by_hand(prepare=lambda p: p.optimizer.add_hook(optimizer_hooks.WeightDecay(0.1)))
def removes_a_hook_late(p: Program) -> None:
    if p.k == 6:
        p.optimizer.remove_hook("WeightDecay")


@by_hand()
def adds_a_rule_s_hook_late(p: Program) -> None:
    if p.k == 6:
        p.model.last.W.update_rule.add_hook(lambda rule, param: p.say(param.grad), name="says")


@whole()
def skips_spikes(p: Program) -> None:
    loss = p.backward()
    if p.k not in (1, 6):
        p.optimizer.update()
    p.say(loss)


@by_hand()
def skips_late(p: Program) -> Any:
    return p.k != 7


@by_hand()
def updates_twice(p: Program) -> None:
    p.optimizer.update()


@by_hand()
def updates_twice_late(p: Program) -> None:
    if p.late:
        p.optimizer.update()


@whole()
def exchanges_the_optimizer(p: Program) -> None:
    p.backward()
    if p.k == 6:
        p.optimizer = optimizers.Adam().setup(p.model)
    p.optimizer.update()


@by_hand()
def forgets_the_state_late(p: Program) -> None:
    for param in p.params() if p.k == 6 else ():
        param.update_rule._state = None


@whole()
def sums_two_passes(p: Program) -> None:
    p.model.cleargrads()
    for half in (slice(0, None, 2), slice(1, None, 2)):
        F.softmax_cross_entropy(p.model(p.x[half].copy()), p.t[half].copy()).backward()
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


@whole()
def never_clears(p: Program) -> None:
    if p.k == 0:
        p.model.cleargrads()
    p.loss().backward()
    p.optimizer.update()


# --- what else a program does between them ----------------------------------------------------------------------------


@by_hand()
def evaluates(p: Program) -> None:
    with chainer.no_backprop_mode(), chainer.using_config("train", False):
        p.say(p.model(p.x[:8].copy()))


@by_hand()
def evaluates_late(p: Program) -> None:
    if p.late:
        evaluates(p)


@by_hand()
def evaluates_with_a_graph_late(p: Program) -> None:
    if p.late:
        p.say(p.model(p.x[:8].copy()))


@by_hand()
def saves_late(p: Program) -> None:
    if p.late:
        _save(p)
        p.say(*(param.array for param in p.params()))


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
def pickles_late(p: Program) -> None:
    if p.late:
        twin = pickle.loads(pickle.dumps(list(p.model.params())))
        p.say(*(param.grad for param in twin))


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
    p.model.cleargrads()
    loss.backward()
    p.say(x.grad)
    if asks:
        p.say(*chainer.grad([loss], [x]))
    p.optimizer.update()


@whole(refused="second backward pass|would run again")
def asks_for_a_gradient_of_the_batch_late(p: Program) -> None:
    _gradient_of_the_batch(p, p.late)


@whole()
def asks_for_a_gradient_of_the_batch(p: Program) -> None:
    _gradient_of_the_batch(p, True)


@whole()
def retains_gradients_late(p: Program) -> None:
    h = p.model.features(p.x)
    loss = F.softmax_cross_entropy(p.model.last(h), p.t)
    p.model.cleargrads()
    loss.backward(retain_grad=p.late)
    if p.late:
        p.say(h.grad)
    p.optimizer.update()


@whole()
def penalizes_gradients(p: Program) -> None:
    x = chainer.Variable(p.x)
    y = F.sum(F.tanh(p.model.first(x)))
    (slope,) = chainer.grad([y], [x], enable_double_backprop=True)
    loss = p.loss() + F.sum(slope * slope) * np.float32(1e-3)
    p.model.cleargrads()
    loss.backward()
    p.optimizer.update()


@whole()
def penalizes_gradients_late(p: Program) -> None:
    if p.late:
        penalizes_gradients(p)
    else:
        p.backward()
        p.optimizer.update()


def _loss_with_nodes(p: Program) -> Any:
    h = p.model.features(p.x)
    nodes = [h.node, h.node.creator_node.inputs[0]]
    loss = F.softmax_cross_entropy(p.model.last(h), p.t)
    return loss, nodes


@whole()
def keeps_nodes(p: Program) -> None:
    loss, nodes = _loss_with_nodes(p)
    p.model.cleargrads()
    loss.backward()
    p.say(*(node.data for node in nodes))
    p.optimizer.update()
    p.say(*(node.data for node in nodes))


@whole()
def keeps_nodes_late(p: Program) -> None:
    if p.late:
        keeps_nodes(p)
    else:
        p.backward()
        p.optimizer.update()


@whole()
def keeps_a_variable(p: Program) -> None:
    h = p.model.features(p.x)
    loss = F.softmax_cross_entropy(p.model.last(h), p.t)
    p.model.cleargrads()
    loss.backward()
    p.say(h, h.node.data)
    p.optimizer.update()
    p.kept["h"] = h
    p.say(h)


@whole()
def reads_a_mask(p: Program) -> None:
    """What a function of Chainer's has drawn, from the graph."""
    h = p.model.features(p.x)
    creator = h.creator_node
    p.say(creator.mask)
    loss = F.softmax_cross_entropy(p.model.last(h), p.t)
    p.model.cleargrads()
    loss.backward()
    p.optimizer.update()


@by_hand()
def unchains_the_loss(p: Program) -> None:
    p.kept["loss"].unchain_backward()


@by_hand(model=lambda: chainer.Sequential(L.Linear(UNITS, UNITS), F.tanh, L.Linear(UNITS, CLASSES)))
def grows_late(p: Program) -> None:
    if p.k == 6:
        p.model.insert(1, L.Linear(UNITS, UNITS))
        p.optimizer.setup(p.model)


@whole(model=lambda: Net(ratio=0.0))
def moves_to_the_same_device(p: Program) -> None:
    p.backward()
    p.model.to_cpu()
    p.optimizer.update()
