"""Run an optimizer's update in pieces: with the temporaries of a piece instead of a parameter's, and the same bits.

::

    whole      param  g  m  v | grad - m   (1 - b1)(...)   grad * grad   ...      3 parameters of temporaries (Adam)
    pieces     param  g  m  v | ...                                               3 pieces, one after another
               ^^^^                                                               flat views of all arrays

An element-wise rule computes every element from the same element of parameter, gradient and state, and from numbers
that are the same for all. So it may be run on flat views of them, one stretch after another: no element can see where
the stretches end, and each operation is rounded for itself. All of `chainer.UpdateRule.update` (switches, counter,
hooks, loss scale, update in float32) stays Chainer's: only `update_core` is run in pieces.

In pieces: the rules of SGD, momentum (also corrected and Nesterov's), Adam and its variants, RMSprop, Graves' RMSprop,
AdaGrad, AdaDelta. Whole: MSVAG (changes a number in every call), SMORMS3 (puts new arrays into its state), rules that
are not Chainer's, hyperparameters that are arrays, arrays that are not contiguous or not NumPy's. On CuPy a rule is one
fused kernel without temporaries, and there is nothing to gain.

Time: that of the whole update, or less, since a piece stays in the cache. Memory: the temporaries of one piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import chainer
import numpy as np
from chainer import optimizers
from chainer.optimizer_hooks import GradientHardClipping, Lasso, WeightDecay

from .bit_packing import flat

PIECE_BYTES = 512 << 10
"""Bytes of a parameter in one piece: with gradient, state and temporaries about a second-level cache."""

MOST_ITEM = 8
"""Bytes of an element, also of a rule's own copy, at most."""

ELEMENTWISE: frozenset[type] = frozenset(
    {
        optimizers.sgd.SGDRule,
        optimizers.momentum_sgd.MomentumSGDRule,
        optimizers.corrected_momentum_sgd.CorrectedMomentumSGDRule,
        optimizers.nesterov_ag.NesterovAGRule,
        optimizers.adam.AdamRule,
        optimizers.rmsprop.RMSpropRule,
        optimizers.rmsprop_graves.RMSpropGravesRule,
        optimizers.ada_grad.AdaGradRule,
        optimizers.ada_delta.AdaDeltaRule,
    }
)
"""Rules whose `update_core_cpu` is element-wise, writes into its state's arrays and changes no number; no subclass.
They look only at their own parameter."""

ELEMENTWISE_HOOKS: frozenset[type] = frozenset({WeightDecay, Lasso, GradientHardClipping})
"""Hooks for each parameter that are element-wise, too."""


def update_in_pieces(param: Any) -> None:
    """Update a `chainer.Parameter` as its `update` does, in pieces if that gives the same bits.

    Without an update rule nothing happens, as in Chainer.
    """
    rule, array = param.update_rule, param.array
    is_small = array is not None and array.size * MOST_ITEM <= PIECE_BYTES
    if rule is None or is_small or not _is_elementwise(rule):
        param.update()
        return

    def update_core(param: Any) -> None:
        # The parameter is the float32 copy here, if the rule keeps one.
        if not _can_be_cut(rule, param):
            type(rule).update_core(rule, param)
            return
        whole = rule._state
        try:
            for stretch, piece in _pieces(param):
                rule._state = {
                    name: flat(value)[stretch] if isinstance(value, np.ndarray) else value
                    for name, value in whole.items()
                }
                rule.update_core_cpu(piece)
        finally:
            rule._state = whole

    rule.update_core = update_core  # which `update` calls
    try:
        param.update()
    finally:
        del rule.update_core


def call_hook_in_pieces(hook: Any, param: Any) -> None:
    """Call an optimizer's hook for one parameter, in pieces if that gives the same bits.

    Parameters
    ----------
    hook
        A hook with ``call_for_each_param``: it is called as ``hook(param.update_rule, param)``.
    param
        A `chainer.Parameter`.
    """
    if type(hook) in ELEMENTWISE_HOOKS and _can_be_cut(None, param):
        for _, piece in _pieces(param):
            hook(param.update_rule, piece)
    else:
        hook(param.update_rule, param)


def _pieces(param: Any) -> Iterator[tuple[slice, Any]]:
    """Yield stretches of a parameter's elements, each with a variable on it that shares the parameter's memory."""
    step = max(PIECE_BYTES // param.array.itemsize, 1)
    for start in range(0, param.array.size, step):
        stretch = slice(start, start + step)
        piece = chainer.Variable(flat(param.array)[stretch], grad=flat(param.grad)[stretch])
        piece._loss_scale = param._loss_scale
        yield stretch, piece


def _is_elementwise(rule: Any) -> bool:
    """Tell whether the rule is one of those known, as Chainer wrote it, with numbers for hyperparameters."""
    changed = "update_core" in vars(rule) or "update_core_cpu" in vars(rule)
    numbers = all(np.ndim(value) == 0 for value in rule.hyperparam.get_dict().values())
    return type(rule) in ELEMENTWISE and not changed and numbers


def _can_be_cut(rule: Any, param: Any) -> bool:
    """Tell whether parameter, gradient and state are NumPy arrays of one shape and order, and larger than a piece."""
    array, grad = param.array, param.grad
    if type(array) is not np.ndarray or type(grad) is not np.ndarray or array.nbytes <= PIECE_BYTES:
        return False
    state = [] if rule is None else [value for value in rule.state.values() if isinstance(value, np.ndarray)]
    alike = all(type(other) is np.ndarray and other.shape == array.shape for other in [grad, *state])
    in_rows = all(other.flags.c_contiguous for other in [array, grad, *state])
    in_columns = all(other.flags.f_contiguous for other in [array, grad, *state])
    return alike and (in_rows or in_columns)
