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
x1 and x2 may differ in shape. Each half is a *step*: one stream has a function of another added. Any list of steps can
be undone, the last first, so streams may be more than two. `RevSilo` fuses any number of resolutions (V. Chiley et al.,
"RevBiFPN: The Fully Reversible Bidirectional Feature Pyramid Network", MLSys 2023, arXiv 2206.14098, section 3 and its
appendix): first each coarser stream gets what is made of all finer ones, then each finer one of all coarser ones::

    fine     x0 ----+---+------------------(+)-- y0
                    |   |                   ^ ^
             x1 ---(+)--|---+------+--(+)---+-|- y1       y1 = h1 + U(h2), h1 = x1 + D(x0): whatever is needed to
                        v   v      |   ^      |           undo a step exists when its turn comes
    coarse   x2 -------(+)-(+)-----|---+------+- y2

**Values are reconstructed by arithmetic, to rounding, and not bit by bit**: ``(x + f) - f`` is not always ``x`` in
floating point. So gradients equal those of the same network kept whole to rounding only, and errors grow with depth.
Everything else in stowplan that lowers a peak changes no bit; these layers are used only if the program names them.

A backward pass takes one forward pass more than usual. Memory: the outputs, the intermediate results of one F or G, and
2.5 kB a step for the state of NumPy's random generator, so that what F and G draw is drawn again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...chainer.rerun import settings
from ...common.errors import StowplanError
from ...compat import enable_chainer

enable_chainer()

import chainer  # noqa: E402 (mended first)
from chainer.functions.activation.rrelu import RReLU  # noqa: E402
from chainer.functions.noise.dropout import Dropout  # noqa: E402
from chainer.functions.noise.gaussian import Gaussian  # noqa: E402
from chainer.functions.noise.simplified_dropconnect import SimplifiedDropconnect  # noqa: E402
from chainer.functions.noise.zoneout import Zoneout  # noqa: E402

__all__ = ["RevSilo", "Reversible", "ReversibleError", "ReversibleSequence", "Step"]

DRAWS = (Dropout, Gaussian, RReLU, SimplifiedDropconnect, Zoneout)
"""Functions that draw at random; on a device not from NumPy's generator."""


class ReversibleError(StowplanError, RuntimeError):
    """A reversible layer cannot compute the gradients requested."""


class Step(NamedTuple):
    """Stream number `target` has a function of stream number `source` added."""

    target: int
    source: int
    function: Callable[[Any], Any]
    name: str


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
            ``chainer.Variable`` or arrays, of the same floating-point type.

        Raises
        ------
        ValueError
            F or G gives another shape or type than what its result is added to.
        """
        y1, y2 = _apply(self.steps(), (x1, x2))
        return y1, y2

    def inverse(self, y1: Any, y2: Any) -> tuple[Any, ...]:
        """Return x1 and x2, to rounding; with a graph, as any Chainer calculation."""
        return _undo(self.steps(), (y1, y2))

    def steps(self) -> list[Step]:
        """Return the two halves."""
        return [Step(0, 1, self.f, "F"), Step(1, 0, self.g, "G")]


class RevSilo(chainer.ChainList):  # type: ignore[misc]
    """RevBiFPN's fusion of n resolutions, the finest first: down to coarser ones, then up to finer ones.

    ``h[j] = x[j] + sum(down(x[i]) for i < j)``, then ``y[i] = h[i] + sum(up(h[j]) for j > i)``: the additive RevSilo
    of Chiley et al.'s appendix, which takes n (n - 1) functions. For the backward pass it keeps all y alone.

    Parameters
    ----------
    resolutions
        n, 2 or more.
    make
        Called with the numbers of two streams, source and target: makes the link that is added to the target.
    """

    def __init__(self, resolutions: int, make: Callable[[int, int], Any]) -> None:
        if resolutions < 2:
            raise ValueError(f"{resolutions} resolutions; expected 2 or more")
        # A stream changes once in each half, and only after all that it is a source of in that half.
        self._pairs = [(s, t) for t in reversed(range(1, resolutions)) for s in range(t)]
        self._pairs += [(s, t) for t in range(resolutions - 1) for s in range(t + 1, resolutions)]
        super().__init__(*(make(source, target) for source, target in self._pairs))

    def forward(self, *x: Any) -> tuple[Any, ...]:
        """Return y, as many as x; errors as `Reversible.forward`."""
        return _apply(self.steps(), x)

    def inverse(self, *y: Any) -> tuple[Any, ...]:
        """Return x, to rounding; with a graph, as any Chainer calculation."""
        return _undo(self.steps(), y)

    def steps(self) -> list[Step]:
        """Return the n (n - 1) steps."""
        return [Step(t, s, link, f"{s} to {t}") for (s, t), link in zip(self._pairs, self, strict=True)]


class ReversibleSequence(chainer.ChainList):  # type: ignore[misc]
    """Couplings one after another, which together keep the last outputs only, however many they are.

    Values are reconstructed by arithmetic: to rounding, not bit by bit, with errors that grow with the depth.

    Parameters
    ----------
    blocks
        Each a `Reversible`, a `RevSilo`, or a `ReversibleSequence`, whose couplings become part of this one's; all
        of as many streams.

    Notes
    -----
    While a parameter's shape is not known (``L.Linear(None, n)`` before its first call), the sequence runs as any other
    network and keeps everything. Gradients through gradients (``enable_double_backprop``) are not supported. F
    and G may use only their own parameters: the backward pass raises for any other.
    """

    def __init__(self, *blocks: Reversible | RevSilo | ReversibleSequence) -> None:
        if not blocks:
            raise ValueError("no blocks; expected at least one Reversible")
        for block in blocks:
            if not isinstance(block, Reversible | RevSilo | ReversibleSequence):
                raise TypeError(
                    f"a block is {type(block).__name__}; expected Reversible, RevSilo or ReversibleSequence"
                )
        counts = {_streams(block.steps()) for block in blocks}
        if len(counts) > 1:
            raise ValueError(f"the blocks have {sorted(counts)} streams; expected one number")
        super().__init__(*blocks)

    def forward(self, *x: Any) -> tuple[Any, ...]:
        """Return the outputs of the last coupling; as `Reversible.forward`."""
        return _apply(self.steps(), x)

    def inverse(self, *y: Any) -> tuple[Any, ...]:
        """Return the inputs of the first coupling, to rounding; as `Reversible.inverse`."""
        return _undo(self.steps(), y)

    def steps(self) -> list[Step]:
        """Return the steps of all blocks."""
        return [step for block in self.children() for step in block.steps()]


def _streams(steps: list[Step]) -> int:
    return 1 + max(step.target for step in steps)


def _apply(steps: list[Step], x: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run steps, as one node of the graph if there is a graph and every parameter is initialized."""
    if len(x) != _streams(steps):
        raise ValueError(f"{len(x)} streams; expected {_streams(steps)}")
    links = [step.function for step in steps if isinstance(step.function, chainer.Link)]
    params = list({id(param): param for link in links for param in link.params()}.values())
    if not chainer.config.enable_backprop or any(not param.is_initialized for param in params):
        streams = list(x)
        for step in steps:
            streams[step.target] = _add(streams[step.target], step.function(streams[step.source]), step.name)
        return tuple(streams)
    return tuple(_Couplings(steps, params).apply((*x, *params)))


def _undo(steps: list[Step], y: tuple[Any, ...]) -> tuple[Any, ...]:
    streams = list(y)
    for step in reversed(steps):
        streams[step.target] = streams[step.target] - step.function(streams[step.source])
    return tuple(streams)


class _Couplings(chainer.FunctionNode):  # type: ignore[misc]
    """Steps as one function of the streams and the parameters, which retains its outputs only."""

    def __init__(self, steps: list[Step], params: list[Any]) -> None:
        super().__init__()
        self._steps, self._params, self._streams = steps, params, _streams(steps)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_outputs(tuple(range(self._streams)))
        self._settings = settings()
        self._states: list[Any] = []
        x = [chainer.Variable(array) for array in inputs[: self._streams]]
        with (
            chainer.no_backprop_mode(),
            chainer.using_config("_will_recompute", True),
            _drawing_on_host(inputs[0]),
        ):
            for target, source, function, name in self._steps:
                self._states.append(_random_state())
                x[target] = _add(x[target], function(x[source]), name)
        return tuple(one.array for one in x)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if chainer.config.enable_backprop:
            raise ReversibleError(
                "a reversible layer has no gradient of its gradient; expected: no double backprop"
            )
        g = list(grad_outputs)
        y = [one.array for one in self.get_retained_outputs()]
        grads: dict[int, Any] = {}
        with contextlib.ExitStack() as stack:
            for name, value in {**self._settings, "in_recomputing": True}.items():
                stack.enter_context(chainer.using_config(name, value))
            stack.enter_context(_random_state_kept())
            for (target, source, function, _), state in zip(
                reversed(self._steps), reversed(self._states), strict=True
            ):
                out, g[source] = self._again(function, state, y[source], g[target], g[source], grads)
                y[target] = y[target] - out
                del out
        return (*g, *(grads.get(id(param)) for param in self._params))

    def _again(
        self, function: Callable[[Any], Any], state: Any, x: Any, gy: Any, gx: Any, grads: dict[int, Any]
    ) -> tuple[Any, Any]:
        """Run F or G again; return its output, and the gradient at its input added to the one that exists already.

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
