"""Small Chainer programs that change from step to step, or are out of the common: a table of kinds. Needs Chainer.

A kind is one step of a program, which knows the number of the step. *Late* is when a schedule runs, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np

STEPS, LATE = 9, 6
BATCH, UNITS, CLASSES = 160, 32, 10


class Bomb(chainer.FunctionNode):  # type: ignore[misc]
    """A copy, whose backward step raises an error, if there is one."""

    def __init__(self, error: type[BaseException] | None) -> None:
        self.error = error

    def forward(self, inputs: Any) -> Any:
        return (inputs[0].copy(),)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        if self.error:
            raise self.error
        return gradients


class Net(chainer.Chain):  # type: ignore[misc]
    """Layers whose activations make the peak, batch normalization, dropout; `at` is called with one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.at: Callable[[Any], object] = lambda h: None
        with self.init_scope():
            self.first, self.norm = L.Linear(None, UNITS), L.BatchNormalization(UNITS)
            self.layers = chainer.ChainList(*(L.Linear(UNITS, UNITS) for _ in range(5)))
            self.last = L.Linear(UNITS, CLASSES)

    def features(self, x: Any) -> Any:
        h = F.relu(self.norm(self.first(x)))
        for number, layer in enumerate(self.layers):
            h = F.tanh(layer(h))
            if number == 1:
                self.at(h)
        return F.dropout(h, 0.2)

    def forward(self, x: Any) -> Any:
        return self.last(self.features(x))


class Program:
    """One training: what it trains, its batch of this step, and what it says of itself."""

    def __init__(self, kind: Kind) -> None:
        np.random.seed(0)
        self.draw = np.random.default_rng(1)
        self.kind, self.k, self.said = kind, 0, list[Any]()
        self.model = kind.model()
        self.optimizer = kind.optimizer().setup(self.model)
        self.more: list[Any] = []
        """Other models and optimizers."""
        self.kept: dict[str, Any] = {}
        """What the program keeps from one moment to another."""
        self.next_batch()
        kind.prepare(self)

    @property
    def late(self) -> bool:
        return self.k >= LATE

    def next_batch(self, size: int = BATCH) -> None:
        self.x = self.draw.standard_normal((size, UNITS)).astype(np.float32)
        self.t = self.draw.integers(0, CLASSES, size, dtype=np.int32)

    def loss(self, *_: Any) -> Any:
        return F.softmax_cross_entropy(self.model(self.x), self.t)

    def say(self, *values: Any) -> None:
        self.said += [np.asarray(getattr(value, "array", value)).tobytes() for value in values]

    @contextmanager
    def says(self, error: type[Exception]) -> Iterator[None]:
        """Catch an error, and say so."""
        try:
            yield
        except error:
            self.say(1)

    def params(self) -> list[Any]:
        return list(self.model.params())

    def backward(self, loss: Any = None) -> Any:
        """Forward, if there is no loss yet, cleargrads, backward; return the loss."""
        loss = self.loss() if loss is None else loss
        self.model.cleargrads()
        loss.backward()
        return loss

    def state(self) -> list[Any]:
        """Return parameters, persistent values, the optimizers' states, the random stream, and what was said."""
        found: list[Any] = []
        for one in (self.model, self.optimizer, *self.more):
            serializer = chainer.serializers.DictionarySerializer()
            serializer.save(one)
            found += [
                (name, np.asarray(value).tobytes())
                for name, value in sorted(serializer.target.items())
                if value is not None
            ]
        found.append(np.random.get_state(legacy=False)["state"]["key"].tobytes())
        return [*found, *self.said]


@dataclass(frozen=True)
class Kind:
    """A kind of program.

    Attributes
    ----------
    step
        Runs one step.
    model, optimizer, prepare
        What is trained, by what; and what is done to both before.
    after
        Done when the step is over, outside of it.
    options
        For every scheduler.
    refused
        Part of the error that a scheduler may end it with; empty: it runs to its end.
    optimizers
        All that the step updates.
    """

    step: Callable[[Program], object]
    model: Callable[[], Any] = Net
    optimizer: Callable[[], Any] = lambda: chainer.optimizers.MomentumSGD(0.05)
    prepare: Callable[[Program], object] = bool
    after: Callable[[Program], object] = bool
    options: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    optimizers: Callable[[Program], list[Any]] = lambda program: [program.optimizer]


KINDS: dict[str, Kind] = {}

Act = Callable[..., Any]


def _decorator(title: str, step_of: Callable[[Act], Act]) -> Callable[..., Callable[[Act], Act]]:
    """Return what makes a kind of a function, by what the function's step is."""

    def kind(**how: Any) -> Callable[[Act], Act]:
        def add(function: Act) -> Act:
            KINDS[f"{title}: {function.__name__}"] = Kind(step_of(function), **how)
            return function

        return add

    return kind


def _with_between(between: Act) -> Act:
    def step(program: Program) -> None:
        loss = program.backward()
        program.kept["loss"] = loss
        update = between(program)
        program.kept.pop("loss", None)
        del loss
        if update is not False:
            program.optimizer.update()

    return step


def _with_loss(within: Act) -> Act:
    def step(program: Program) -> None:
        def loss(*_: Any) -> Any:
            y = program.model(program.x)
            usual = F.softmax_cross_entropy(y, program.t)
            other = within(program, y)
            return usual if other is None else other

        program.optimizer.update(loss)

    return step


by_hand = _decorator("by hand", _with_between)
"""A kind whose function stands between backward() and update()."""
by_call = _decorator("by call", lambda before: lambda p: (before(p), p.optimizer.update(p.loss)))
"""A kind whose function comes before ``optimizer.update(lossfun)``."""
inside = _decorator("inside", _with_loss)
"""A kind whose function, given the model's output, is called in the loss function; it may return another loss."""
whole = _decorator("whole", lambda step: step)
"""A kind whose function is the step."""


def after_call(**how: Any) -> Callable[[Act], Act]:
    """A kind whose function comes when the step of ``optimizer.update(lossfun)`` is over."""

    def add(after: Act) -> Act:
        _decorator("after", lambda _: lambda p: p.optimizer.update(p.loss))(after=after, **how)(after)
        return after

    return add
