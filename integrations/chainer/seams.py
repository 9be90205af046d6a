"""Four Chainer functions, replaced while a scheduled step runs, for its thread alone.

=================================  =====================================================================================
what is replaced                   what a step does there
=================================  =====================================================================================
``FunctionNode.apply``             numbers the operator, and frees, after it, the arrays that the schedule does not keep
``_backprop._backprop_to_all``     the backward pass of `Variable.backward` and `chainer.backward`: its own loop
``_backprop_utils.backprop_step``  one operator's backward step, that of `chainer.grad` and of double backprop, too:
                                   the arrays that it reads are brought back
``im2col_cpu`` of convolutions      images are unfolded with half of the workspace (`columns`)
=================================  =====================================================================================

Function hooks do not suffice: an operator's inputs are read before `backward_preprocess`, and a hook cannot free
arrays. The first step that begins replaces the functions; the last one that ends, in any thread, restores Chainer's.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ..compat import enable_chainer

enable_chainer()

from chainer import _backprop, _backprop_utils, function_node  # noqa: E402 (mended first)
from chainer.functions.connection import convolution_2d  # noqa: E402

from .columns import im2col  # noqa: E402

__all__ = ["OperatorStep", "apply", "backprop_step", "backprop_to_all", "running"]

apply = function_node.FunctionNode.apply
backprop_to_all = _backprop._backprop_to_all
backprop_step = _backprop_utils.backprop_step
conv = convolution_2d.conv
"""Chainer's own."""


class OperatorStep(Protocol):
    """A step, as the replaced functions call it."""

    def forward(self, function: Any, inputs: Any) -> Any:
        """Apply a function, as `FunctionNode.apply`."""

    def backward(self, outputs: Any, retain_grad: bool, loss_scale: Any) -> None:
        """Run a backward pass, as `_backprop_to_all`."""

    def before_backward_step(self, function: Any) -> None:
        """Bring back all arrays that one function's backward step reads."""


_here = threading.local()
_lock = threading.Lock()
_steps = 0


@contextmanager
def running(step: OperatorStep) -> Iterator[None]:
    """While entered, pass this thread's calls to a step; afterwards to the one before it."""
    outer = getattr(_here, "step", None)
    _replace()
    _here.step = step
    try:
        yield
    finally:
        _here.step = outer
        _put_back()


def _replace() -> None:
    global _steps
    with _lock:
        _steps += 1
        if _steps == 1:
            function_node.FunctionNode.apply = _apply
            _backprop._backprop_to_all = _backprop_to_all
            _backprop_utils.backprop_step = _backprop_step
            convolution_2d.conv = _conv


def _put_back() -> None:
    global _steps
    with _lock:
        _steps -= 1
        if _steps == 0:
            function_node.FunctionNode.apply = apply
            _backprop._backprop_to_all = backprop_to_all
            _backprop_utils.backprop_step = backprop_step
            convolution_2d.conv = conv


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
