"""Reversible layers: for its backward pass a network of any depth keeps only its last outputs.

::

    forward                          backward, block by block from the last
    x1 ----------(+)---- y1          x2 = y2 - G(y1)        reconstructed
    x2 --+-- F ---^      |           x1 = y1 - F(x2)
         |               G           g1 = g1 + g2 dG/dy1    by running G and F again, each with a graph of its own
         +------(+)------+-- y2      g2 = g2 + g1 dF/dx2
                          ^

The additive coupling of A. N. Gomez, M. Ren, R. Urtasun and R. B. Grosse, "The Reversible Residual Network:
Backpropagation Without Storing Activations", NeurIPS 2017, section 3.1 and algorithm 1. F and G may be any links, and
x1 and x2 may differ in shape: with down- and upsampling inside F and G this is RevBiFPN's fusion of two resolutions (V.
Chiley et al., "RevBiFPN: The Fully Reversible Bidirectional Feature Pyramid Network", arXiv 2206.14098, 2022).

**Values are reconstructed by arithmetic, to rounding, and not bit by bit**: ``(x + f) - f`` is not always ``x`` in
floating point. So gradients equal those of the same network kept whole to rounding only, and errors grow with depth.
Everything else in stowplan that lowers a peak changes no bit; these layers are used only if the program names them.

A backward pass takes one forward pass more than usual. Memory: the outputs, the intermediate results of one F or G, and
5 kB a block for the state of NumPy's random generator, so that what F and G draw is drawn again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ...chainer.rerun import settings
from ...compat import enable_chainer
from ...errors import StowplanError

enable_chainer()

import chainer  # noqa: E402 (mended first)
from chainer.functions.activation.rrelu import RReLU  # noqa: E402
from chainer.functions.noise.dropout import Dropout  # noqa: E402
from chainer.functions.noise.gaussian import Gaussian  # noqa: E402
from chainer.functions.noise.simplified_dropconnect import SimplifiedDropconnect  # noqa: E402
from chainer.functions.noise.zoneout import Zoneout  # noqa: E402

__all__ = ["Reversible", "ReversibleError", "ReversibleSequence"]

DRAWS = (Dropout, Gaussian, RReLU, SimplifiedDropconnect, Zoneout)
"""Functions that draw at random; on a device not from NumPy's generator."""


class ReversibleError(StowplanError, RuntimeError):
    """A reversible layer cannot compute the gradients requested."""


class Reversible(chainer.Chain):  # type: ignore[misc]
    """One additive coupling: ``y1 = x1 + F(x2)``, ``y2 = x2 + G(y1)``.

    For the backward pass it keeps y1 and y2 alone, and reconstructs x1 and x2 by arithmetic: to rounding, not bit by
    bit.

    Parameters
    ----------
    f
        The function from x2 to the shape and type of x1: a link, or any callable without parameters.
    g
        The function from y1 to the shape and type of x2; likewise.
    """

    def __init__(self, f: Callable[[Any], Any], g: Callable[[Any], Any]) -> None:
        super().__init__()
        with self.init_scope():
            self.f = f
            self.g = g

    def forward(self, x1: Any, x2: Any) -> tuple[Any, Any]:
        """Return y1 and y2.

        Parameters
        ----------
        x1, x2
            `chainer.Variable` or arrays, of the same floating-point type.

        Raises
        ------
        ValueError
            F or G gives another shape or type than what its result is added to.
        """
        return _apply([self], x1, x2)

    def inverse(self, y1: Any, y2: Any) -> tuple[Any, Any]:
        """Return x1 and x2, to rounding; with a graph, as any calculation of Chainer's."""
        x2 = y2 - self.g(y1)
        return y1 - self.f(x2), x2


class ReversibleSequence(chainer.ChainList):  # type: ignore[misc]
    """Couplings one after another, which together keep the last outputs only, however many they are.

    Values are reconstructed by arithmetic: to rounding, not bit by bit, with errors that grow with the depth.

    Parameters
    ----------
    blocks
        Each a `Reversible`, or a `ReversibleSequence`, whose couplings become part of this one's.

    Notes
    -----
    While a parameter's shape is not known (``L.Linear(None, n)`` before its first call), the sequence runs as any other
    network and keeps everything. Gradients through gradients (``enable_double_backprop``) are not supported. F
    and G may use only their own parameters: the backward pass raises for any other.
    """

    def __init__(self, *blocks: Reversible | ReversibleSequence) -> None:
        if not blocks:
            raise ValueError("no blocks; expected at least one Reversible")
        for block in blocks:
            if not isinstance(block, Reversible | ReversibleSequence):
                raise TypeError(
                    f"a block is {type(block).__name__}; expected Reversible or ReversibleSequence"
                )
        super().__init__(*blocks)

    def forward(self, x1: Any, x2: Any) -> tuple[Any, Any]:
        """Return the outputs of the last coupling; as `Reversible.forward`."""
        return _apply(list(self._couplings()), x1, x2)

    def inverse(self, y1: Any, y2: Any) -> tuple[Any, Any]:
        """Return the inputs of the first coupling, to rounding; as `Reversible.inverse`."""
        for block in reversed(list(self._couplings())):
            y1, y2 = block.inverse(y1, y2)
        return y1, y2

    def _couplings(self) -> Iterator[Reversible]:
        for block in self.children():
            if isinstance(block, ReversibleSequence):
                yield from block._couplings()
            else:
                yield block


def _apply(blocks: list[Reversible], x1: Any, x2: Any) -> tuple[Any, Any]:
    """Run couplings, as one node of the graph if there is a graph and every parameter is initialized."""
    params = list({id(param): param for block in blocks for param in block.params()}.values())
    if not chainer.config.enable_backprop or any(not param.is_initialized for param in params):
        for block in blocks:
            x1 = _add(x1, block.f(x2), "F")
            x2 = _add(x2, block.g(x1), "G")
        return x1, x2
    y1, y2 = _Couplings(blocks, params).apply((x1, x2, *params))
    return y1, y2


class _Couplings(chainer.FunctionNode):  # type: ignore[misc]
    """Couplings as one function of x1, x2 and the parameters, which retains its outputs only."""

    def __init__(self, blocks: list[Reversible], params: list[Any]) -> None:
        super().__init__()
        self._blocks, self._params = blocks, params

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_outputs((0, 1))
        self._settings = settings()
        self._states: list[Any] = []
        x1, x2 = (chainer.Variable(array) for array in inputs[:2])
        with (
            chainer.no_backprop_mode(),
            chainer.using_config("_will_recompute", True),
            _drawing_on_host(inputs[0]),
        ):
            for block in self._blocks:
                before_f = _random_state()
                x1 = _add(x1, block.f(x2), "F")
                self._states.append((before_f, _random_state()))
                x2 = _add(x2, block.g(x1), "G")
        return x1.array, x2.array

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if chainer.config.enable_backprop:
            raise ReversibleError(
                "a reversible layer has no gradient of its gradient; expected: no double backprop"
            )
        g1, g2 = grad_outputs
        y1, y2 = (y.array for y in self.get_retained_outputs())
        grads: dict[int, Any] = {}
        with contextlib.ExitStack() as stack:
            for name, value in {**self._settings, "in_recomputing": True}.items():
                stack.enter_context(chainer.using_config(name, value))
            stack.enter_context(_random_state_kept())
            for block, (before_f, before_g) in zip(
                reversed(self._blocks), reversed(self._states), strict=True
            ):
                out, g1 = self._again(block.g, before_g, y1, g2, g1, grads)
                y2 = y2 - out
                out, g2 = self._again(block.f, before_f, y2, g1, g2, grads)
                y1 = y1 - out
                del out
        return (g1, g2, *(grads.get(id(param)) for param in self._params))

    def _again(
        self, function: Callable[[Any], Any], state: Any, x: Any, gy: Any, gx: Any, grads: dict[int, Any]
    ) -> tuple[Any, Any]:
        """Run F or G again; return its output, and the gradient at its input added to the one that is there already.

        Gradients of parameters are added to those in `grads`.
        """
        np.random.set_state(state)  # noqa: NPY002 (the generator that Chainer draws from)
        if gy is None:
            with chainer.no_backprop_mode():
                return function(chainer.Variable(x)).array, gx
        x = chainer.Variable(x)
        with chainer.force_backprop_mode():
            y = function(x)
        _check_leaves(y, x, self._params)
        found = chainer.grad([y], [x, *self._params], [gy])
        for param, grad in zip(self._params, found[1:], strict=True):
            if grad is not None:
                grads[id(param)] = _sum(grads.get(id(param)), grad)
        return y.array, _sum(gx, found[0])


def _sum(a: Any, b: Any) -> Any:
    """Add two gradients, each of which may be None: zero."""
    return a if b is None else b if a is None else a + b


def _add(x: Any, y: Any, name: str) -> Any:
    """Add the output of F or G, if it is like what it is added to."""
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError(
            f"{name} gives {y.dtype} {y.shape}; expected {x.dtype} {x.shape}, like the input that it is added to"
        )
    return x + y


def _check_leaves(y: Any, x: Any, params: Iterable[Any]) -> None:
    """Raise if a gradient would be lost: F or G uses a variable that is neither its input nor its parameter."""
    known = {id(x.node), *(id(param.node) for param in params)}
    seen, waiting = set(), [y.node]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or id(node) in known or not node.requires_grad:
            continue
        seen.add(id(node))
        if node.creator_node is None:
            raise ReversibleError(
                f"F or G uses a variable {node.name or ''} of shape {node.shape} that is neither its input nor a "
                "parameter of the block; expected: a child of the block, or an array without gradient"
            )
        waiting.extend(node.creator_node.inputs)


def _random_state() -> Any:
    return np.random.get_state(legacy=False)  # noqa: NPY002 (the generator that Chainer draws from)


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    state = _random_state()
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


class _NoDraws(chainer.FunctionHook):  # type: ignore[misc]
    """Refuses functions that draw at random on a device, since they cannot draw the same again."""

    name = "stowplan.papers.mlsys2023.reversible"

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        if isinstance(function, DRAWS) and chainer.config.train:
            raise ReversibleError(
                f"{type(function).__name__} draws at random inside a reversible layer on a device, which cannot be "
                "drawn again; expected: no random function in F and G there, or the host"
            )


def _drawing_on_host(array: Any) -> contextlib.AbstractContextManager[Any]:
    nested = _NoDraws.name in chainer.get_function_hooks()
    return contextlib.nullcontext() if isinstance(array, np.ndarray) or nested else _NoDraws()
