"""Chainer's examples mnist, cifar, ptb and dcgan, as the experiments train them: networks, optimizers, made-up data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stowplan.compat import enable_chainer

enable_chainer()

import chainer  # noqa: E402 (mended first)
import chainer.functions as F  # noqa: E402, N812
import chainer.links as L  # noqa: E402, N812

from ..models.ptb import LanguageModel  # noqa: E402
from .train_mnist import MLP  # noqa: E402

__all__ = ["EXAMPLES", "Training"]


@dataclass(frozen=True)
class Training:
    """A training: its optimizers, and what runs step `i` of it."""

    optimizers: list[Any]
    step: Callable[[int], None]


def mnist() -> Training:
    """A perceptron of 1,000 units, batches of 100, Adam."""
    model = L.Classifier(MLP(1000, 10))
    optimizer = chainer.optimizers.Adam().setup(model)
    rng = np.random.default_rng(0)
    images = rng.random((60_000, 784), dtype=np.float32)
    digits = rng.integers(0, 10, 60_000, dtype=np.int32)

    def step(i: int) -> None:
        batch = slice(i * 100 % 60_000, i * 100 % 60_000 + 100)
        optimizer.update(model, images[batch], digits[batch])

    return Training([optimizer], step)


class _Block(chainer.Chain):  # type: ignore[misc]
    """Convolution, batch normalization, ReLU, and dropout where `ratio` is not 0."""

    def __init__(self, channels: int, ratio: float) -> None:
        super().__init__()
        self._ratio = ratio
        with self.init_scope():
            self.conv = L.Convolution2D(None, channels, 3, pad=1, nobias=True)
            self.bn = L.BatchNormalization(channels)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.bn(self.conv(x)))
        return F.dropout(h, self._ratio) if self._ratio else h


def cifar() -> Training:
    """VGG with batch normalization, batches of 32 images of 32 by 32, momentum and weight decay."""
    layers: list[Any] = []
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        first = 0.3 if channels == 64 else 0.4
        layers += [_Block(channels, first if number < count - 1 else 0.0) for number in range(count)]
        layers += [lambda x: F.max_pooling_2d(x, 2, 2)]
    head = [F.dropout, L.Linear(None, 512, nobias=True), L.BatchNormalization(512), F.relu, F.dropout]
    model = L.Classifier(chainer.Sequential(*layers, *head, L.Linear(None, 10)))
    optimizer = chainer.optimizers.MomentumSGD(0.1).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(5e-4))
    rng = np.random.default_rng(0)
    images = rng.random((320, 3, 32, 32), dtype=np.float32)
    labels = rng.integers(0, 10, 320, dtype=np.int32)

    def step(i: int) -> None:
        batch = slice(i * 32 % 320, i * 32 % 320 + 32)
        optimizer.update(model, images[batch], labels[batch])

    return Training([optimizer], step)


def ptb() -> Training:
    """Two LSTMs of 650 units over 35 words, batches of 20, SGD and clipping."""
    model = LanguageModel(units=650)
    optimizer = chainer.optimizers.SGD(1.0).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(5))
    words = np.random.default_rng(0).integers(0, 2000, (20, 35 * 8 + 1), dtype=np.int32)

    def step(i: int) -> None:
        at = 35 * (i % 8)
        optimizer.update(model, words[:, at : at + 35], words[:, at + 1 : at + 36])

    return Training([optimizer], step)


class _Generator(chainer.Chain):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        draw = chainer.initializers.Normal(0.02)
        with self.init_scope():
            self.start = L.Linear(100, 4 * 4 * 512, initialW=draw)
            self.norm = L.BatchNormalization(4 * 4 * 512)
            self.up = chainer.ChainList(
                *(L.Deconvolution2D(None, c, 4, 2, 1, initialW=draw) for c in (256, 128, 64))
            )
            self.norms = chainer.ChainList(*(L.BatchNormalization(c) for c in (256, 128, 64)))
            self.last = L.Deconvolution2D(None, 3, 3, 1, 1, initialW=draw)

    def forward(self, z: Any) -> Any:
        h = F.reshape(F.relu(self.norm(self.start(z))), (len(z), 512, 4, 4))
        for up, norm in zip(self.up, self.norms, strict=True):
            h = F.relu(norm(up(h)))
        return F.sigmoid(self.last(h))


class _Discriminator(chainer.Chain):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        draw = chainer.initializers.Normal(0.02)
        widths = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
        with self.init_scope():
            self.convs = chainer.ChainList(
                *(L.Convolution2D(None, c, 2 + 2 * (s > 1) + (s == 1), s, 1, initialW=draw) for c, s in widths)
            )
            self.norms = chainer.ChainList(*(L.BatchNormalization(c, use_gamma=False) for c, _ in widths[1:]))
            self.last = L.Linear(None, 1, initialW=draw)

    def forward(self, x: Any) -> Any:
        h = F.leaky_relu(_noisy(self.convs[0](_noisy(x))))
        for conv, norm in zip(list(self.convs)[1:], self.norms, strict=True):
            h = F.leaky_relu(_noisy(norm(conv(h))))
        return self.last(h)


def _noisy(h: Any) -> Any:
    return h + 0.2 * np.random.randn(*h.shape).astype(np.float32)  # noqa: NPY002 (as the example)


def dcgan() -> Training:
    """A generator and a discriminator for images of 32 by 32, batches of 20, two optimizers that share a graph."""
    generator, discriminator = _Generator(), _Discriminator()
    optimizers = [chainer.optimizers.Adam(2e-4, beta1=0.5).setup(each) for each in (generator, discriminator)]
    for optimizer in optimizers:
        optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))
    images = np.random.default_rng(0).random((200, 3, 32, 32), dtype=np.float32)

    def step(i: int) -> None:
        real = images[i * 20 % 200 : i * 20 % 200 + 20]
        on_real = discriminator(chainer.Variable(real))
        z = np.random.uniform(-1, 1, (20, 100)).astype(np.float32)  # noqa: NPY002 (as the example)
        on_made = discriminator(generator(chainer.Variable(z)))
        optimizers[1].update(
            lambda: F.sum(F.softplus(-on_real)) / 20 + F.sum(F.softplus(on_made)) / 20
        )
        optimizers[0].update(lambda: F.sum(F.softplus(-on_made)) / 20)

    return Training(optimizers, step)


EXAMPLES: dict[str, tuple[Callable[[], Training], int]] = {
    "mnist": (mnist, 1500),
    "cifar": (cifar, 24),
    "ptb": (ptb, 20),
    "dcgan": (dcgan, 12),
}
"""Each example with its number of steps."""
