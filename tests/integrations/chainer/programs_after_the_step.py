"""Kinds of programs with ``optimizer.update(lossfun)`` that do something when the step is over."""

from __future__ import annotations

import copy
import pickle

import numpy as np

from .programs import Program, after_call
from .programs_by_call import GONE


@after_call(refused=GONE)
def gradients_are_read_late(p: Program) -> None:
    if p.late:
        p.say(*(param.grad for param in p.params()))


@after_call(options={"early_updates": False})
def gradients_are_read(p: Program) -> None:
    p.say(*(param.grad for param in p.params()))


@after_call()
def the_best_is_kept(p: Program) -> None:
    p.kept["best"] = copy.deepcopy(p.model)
    p.say(*(param.array for param in p.kept["best"].params()))


@after_call()
def the_model_is_pickled(p: Program) -> None:
    p.say(*(param.array for param in pickle.loads(pickle.dumps(list(p.model.params())))))


@after_call()
def weights_are_averaged(p: Program) -> None:
    mean = p.kept.setdefault("mean", p.model.copy("copy"))
    for one, param in zip(mean.params(), p.model.params(), strict=True):
        one.array[...] += np.float32(0.1) * (param.array - one.array)
    p.say(*(one.array for one in mean.params()))


@after_call()
def a_step_by_hand_late(p: Program) -> None:
    if p.late:
        p.backward()
        p.optimizer.update()


@after_call()
def weights_are_clamped(p: Program) -> None:
    for param in p.params():
        np.clip(param.array, -0.1, 0.1, out=param.array)
