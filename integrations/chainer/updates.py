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

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..compat import enable_chainer

enable_chainer()

import chainer  # noqa: E402 (mended first)
from chainer.optimizer_hooks import GradientHardClipping, Lasso, WeightDecay  # noqa: E402
from chainer.optimizers.ada_delta import AdaDeltaRule  # noqa: E402
from chainer.optimizers.ada_grad import AdaGradRule  # noqa: E402
from chainer.optimizers.adam import AdamRule  # noqa: E402
from chainer.optimizers.corrected_momentum_sgd import CorrectedMomentumSGDRule  # noqa: E402
from chainer.optimizers.momentum_sgd import MomentumSGDRule  # noqa: E402
from chainer.optimizers.nesterov_ag import NesterovAGRule  # noqa: E402
from chainer.optimizers.rmsprop import RMSpropRule  # noqa: E402
from chainer.optimizers.rmsprop_graves import RMSpropGravesRule  # noqa: E402
from chainer.optimizers.sgd import SGDRule  # noqa: E402

__all__ = ["ELEMENTWISE", "ELEMENTWISE_HOOKS", "PIECE_BYTES", "call_hook_in_pieces", "update_in_pieces"]

PIECE_BYTES = 512 << 10
"""Bytes of a parameter in one piece: with gradient, state and temporaries about a second-level cache."""

ELEMENTWISE: frozenset[type] = frozenset(
    {
        SGDRule,
        MomentumSGDRule,
        CorrectedMomentumSGDRule,
        NesterovAGRule,
        AdamRule,
        RMSpropRule,
        RMSpropGravesRule,
        AdaGradRule,
        AdaDeltaRule,
    }
)
"""Rules whose `update_core_cpu` is element-wise, writes into its state's arrays and changes no number; no subclass."""

ELEMENTWISE_HOOKS: frozenset[type] = frozenset({WeightDecay, Lasso, GradientHardClipping})
"""Hooks for each parameter that are element-wise, too."""


def update_in_pieces(param: Any, piece_bytes: int = PIECE_BYTES) -> None:
    """Update a parameter as `chainer.Parameter.update` does, in pieces if that gives the same bits.

    Parameters
    ----------
    param
        A `chainer.Parameter`. Without an update rule nothing happens, as in Chainer.
    piece_bytes
        Bytes of the parameter in one piece, at least one. Parameters that are no larger are updated whole.
    """
    if piece_bytes < 1:
        raise ValueError(f"piece_bytes is {piece_bytes}; expected at least 1")
    rule = param.update_rule
    if rule is None or not _is_elementwise(rule):
        param.update()
        return

    def update_core(param: Any) -> None:
        # The parameter is the float32 copy here, if the rule keeps one.
        if _can_be_cut(rule, param, piece_bytes):
            for piece in _pieces(param, piece_bytes):
                with _state_cut(rule, piece.start, piece.stop):
                    rule.update_core_cpu(piece.param)
        else:
            type(rule).update_core(rule, param)

    with _instead(rule, update_core):
        param.update()


def call_hook_in_pieces(hook: Any, param: Any, piece_bytes: int = PIECE_BYTES) -> None:
    """Call an optimizer's hook for one parameter, in pieces if that gives the same bits.

    Parameters
    ----------
    hook
        A hook with ``call_for_each_param``: it is called as ``hook(param.update_rule, param)``.
    param, piece_bytes
        As for `update_in_pieces`.
    """
    if type(hook) in ELEMENTWISE_HOOKS and _can_be_cut(None, param, piece_bytes):
        for piece in _pieces(param, piece_bytes):
            hook(param.update_rule, piece.param)
    else:
        hook(param.update_rule, param)


class _Piece:
    """A variable on a stretch ``[start, stop)`` of a parameter's elements, which share its memory."""

    def __init__(self, param: Any, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.param = chainer.Variable(_flat(param.array)[start:stop], grad=_flat(param.grad)[start:stop])
        self.param._loss_scale = param._loss_scale


def _pieces(param: Any, piece_bytes: int) -> Iterator[_Piece]:
    size, step = param.array.size, max(piece_bytes // param.array.itemsize, 1)
    for start in range(0, size, step):
        yield _Piece(param, start, min(start + step, size))


@contextlib.contextmanager
def _state_cut(rule: Any, start: int, stop: int) -> Iterator[None]:
    """Give the rule only this stretch of its state; restore the whole state at the end."""
    whole = rule._state
    rule._state = {
        name: _flat(value)[start:stop] if isinstance(value, np.ndarray) else value
        for name, value in whole.items()
    }
    try:
        yield
    finally:
        rule._state = whole


@contextlib.contextmanager
def _instead(rule: Any, update_core: Callable[[Any], None]) -> Iterator[None]:
    """While entered, the rule's `update` calls this function in place of its own `update_core`."""
    rule.update_core = update_core
    try:
        yield
    finally:
        del rule.update_core


def _is_elementwise(rule: Any) -> bool:
    """Tell whether the rule is one of those known, as Chainer wrote it, with numbers for hyperparameters."""
    changed = "update_core" in vars(rule) or "update_core_cpu" in vars(rule)
    numbers = all(np.ndim(value) == 0 for value in rule.hyperparam.get_dict().values())
    return type(rule) in ELEMENTWISE and not changed and numbers


def _can_be_cut(rule: Any, param: Any, piece_bytes: int) -> bool:
    """Tell whether parameter, gradient and state are NumPy arrays of one shape and order, and larger than a piece."""
    array, grad = param.array, param.grad
    if type(array) is not np.ndarray or type(grad) is not np.ndarray or array.nbytes <= piece_bytes:
        return False
    state = [] if rule is None else [value for value in rule.state.values() if isinstance(value, np.ndarray)]
    alike = all(type(other) is np.ndarray and other.shape == array.shape for other in [grad, *state])
    in_rows = all(other.flags.c_contiguous for other in [array, grad, *state])
    in_columns = all(other.flags.f_contiguous for other in [array, grad, *state])
    return alike and (in_rows or in_columns)


def _flat(array: Any) -> Any:
    """Return the elements of a contiguous array in the order of its memory, as a view."""
    return (array if array.flags.c_contiguous else array.T).reshape(-1)
