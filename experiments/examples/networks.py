"""Chainer's examples mnist, cifar, ptb and dcgan, as the experiments train them: networks, optimizers, made-up data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stowplan.compat import enable_chainer

enable_chainer()

import chainer  # noqa: E402 (mended first)
import chainer.links as L  # noqa: E402

from ..models.dcgan import Dcgan  # noqa: E402
from ..models.ptb import LanguageModel  # noqa: E402
from ..models.vgg import VGG  # noqa: E402
from .train_mnist import MLP  # noqa: E402

__all__ = ["EXAMPLES", "Example", "Training"]


@dataclass(frozen=True)
class Training:
    """A training: its optimizers, and what runs step `i` of it."""

    optimizers: list[Any]
    step: Callable[[int], None]


def _classified(optimizer: Any, shape: tuple[int, ...], examples: int, batch: int) -> Training:
    """Return a training by random examples of ten classes, batch after batch of them."""
    rng = np.random.default_rng(0)
    images = rng.random((examples, *shape), dtype=np.float32)
    labels = rng.integers(0, 10, examples, dtype=np.int32)

    def step(i: int) -> None:
        first = i * batch % examples
        optimizer.update(optimizer.target, images[first : first + batch], labels[first : first + batch])

    return Training([optimizer], step)


def mnist() -> Training:
    """Return a perceptron of 1,000 units, batches of 100, Adam."""
    optimizer = chainer.optimizers.Adam().setup(L.Classifier(MLP(1000, 10)))
    return _classified(optimizer, (784,), 60_000, 100)


def cifar() -> Training:
    """Return VGG with batch normalization, batches of 32 images of 32 by 32, momentum and weight decay."""
    optimizer = chainer.optimizers.MomentumSGD(0.1).setup(VGG(10))
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(5e-4))
    return _classified(optimizer, (3, 32, 32), 320, 32)


def ptb() -> Training:
    """Return two LSTMs of 650 units over 35 words, batches of 20, SGD and clipping."""
    model = LanguageModel(units=650)
    optimizer = chainer.optimizers.SGD(1.0).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(5))
    words = np.random.default_rng(0).integers(0, 2000, (20, 35 * 8 + 1), dtype=np.int32)

    def step(i: int) -> None:
        at = 35 * (i % 8)
        optimizer.update(model, words[:, at : at + 35], words[:, at + 1 : at + 36])

    return Training([optimizer], step)


def dcgan() -> Training:
    """Return a generator and a discriminator, batches of 20, two optimizers whose losses share a graph."""
    gan = Dcgan(20, one_graph=True, seed=0)
    return Training(gan.optimizers, lambda i: gan.step())


@dataclass(frozen=True)
class Example:
    """What trains, for how many steps, and the budget of a schedule: all that is alive, parameters and state included.

    The budgets are between the least that can be kept and what lean steps have alive, which lie close together. None:
    the graph is kept, and a schedule lowers nothing.
    """

    make: Callable[[], Training]
    steps: int
    budget: str | None


EXAMPLES = {
    "mnist": Example(mnist, 1500, "26.8 MiB"),
    "cifar": Example(cifar, 24, "355 MiB"),
    "ptb": Example(ptb, 20, "95 MiB"),
    "dcgan": Example(dcgan, 12, None),
}
