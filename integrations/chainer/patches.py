"""Four Chainer functions, replaced while a scheduled step runs, for its thread alone.

=================================  =====================================================================================
what is replaced                   what a step does there
=================================  =====================================================================================
``FunctionNode.apply``             numbers the operator, and frees, after it, the arrays that the schedule does not keep
``_backprop._backprop_to_all``     the backward pass of `Variable.backward` and `chainer.backward`: its own loop
``_backprop_utils.backprop_step``  one operator's backward step, that of `chainer.grad` and of double backprop, too:
                                   the arrays that it reads are brought back
``im2col_cpu`` of convolutions     images are unfolded with half of the workspace (`im2col`)
=================================  =====================================================================================

Function hooks do not suffice: an operator's inputs are read before `backward_preprocess`, and a hook cannot free
arrays. The first step that begins replaces the functions; the last one that ends, in any thread, restores Chainer's.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chainer import _backprop, _backprop_utils, function_node
from chainer.functions.connection import convolution_2d

from .im2col import im2col

if TYPE_CHECKING:
    from .execution import ScheduledStep

apply = function_node.FunctionNode.apply
backprop_to_all = _backprop._backprop_to_all
backprop_step = _backprop_utils.backprop_step
conv = convolution_2d.conv
"""Chainer's own."""


_here = threading.local()
_lock = threading.Lock()
_steps = set[int]()


def _apply(function: Any, inputs: Any) -> Any:
    step = getattr(_here, "step", None)
    return apply(function, inputs) if step is None else step.forward(function, inputs)


def _backprop_to_all(outputs: Any, retain_grad: bool, loss_scale: Any) -> None:
    step = getattr(_here, "step", None)
    if step is None:
        backprop_to_all(outputs, retain_grad, loss_scale)
    else:
        step.backward(outputs, retain_grad, loss_scale)


def _backprop_step(function: Any, *rest: Any) -> None:
    step = getattr(_here, "step", None)
    if step is not None:
        step.before_backward_step(function)
    backprop_step(function, *rest)


def _im2col(*args: Any, **named: Any) -> Any:
    unfold = conv.im2col_cpu if getattr(_here, "step", None) is None else im2col
    return unfold(*args, **named)


_conv = types.ModuleType(conv.__name__)
"""`chainer.utils.conv` as convolutions see it meanwhile."""
vars(_conv).update(vars(conv), im2col_cpu=_im2col)

_SEAMS = (
    (function_node.FunctionNode, "apply", apply, _apply),
    (_backprop, "_backprop_to_all", backprop_to_all, _backprop_to_all),
    (_backprop_utils, "backprop_step", backprop_step, _backprop_step),
    (convolution_2d, "conv", conv, _conv),
)
"""Where each function is, under which name, Chainer's own, and what stands in its place."""


@contextmanager
def running(step: ScheduledStep) -> Iterator[None]:
    """While entered, pass this thread's calls to a step; afterwards to the one before it."""
    outer = getattr(_here, "step", None)
    try:
        _replace(_steps.add, id(step))
        _here.step = step
        yield
    finally:
        _here.step = outer
        _replace(_steps.discard, id(step))


def _replace(change: Callable[[int], None], step: int) -> None:
    """Change which steps run; while there are any, the functions are replaced."""
    with _lock:
        change(step)
        for holder, name, own, replacement in _SEAMS:
            setattr(holder, name, replacement if _steps else own)
