"""A DCGAN for images of 32 pixels, of the sizes of Chainer's example ``dcgan``.

A. Radford, L. Metz, S. Chintala, *Unsupervised Representation Learning with Deep Convolutional Generative Adversarial
Networks*, 2016. Of two updates: one graph for both losses, as in the example, or a graph for each.
"""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812
import numpy as np

CHANNELS, NOISE = 512, 100


def generator() -> Any:
    """Return a network from noise (batch, NOISE) to images (batch, 3, 32, 32)."""
    layers: list[Any] = [L.Linear(NOISE, 16 * CHANNELS), lambda h: F.reshape(h, (-1, CHANNELS, 4, 4))]
    for n in (CHANNELS, CHANNELS // 2, CHANNELS // 4):
        layers += [L.BatchNormalization(n), F.relu, L.Deconvolution2D(n, n // 2, 4, 2, 1)]
    return chainer.Sequential(
        *layers, L.BatchNormalization(CHANNELS // 8), F.relu, L.Convolution2D(None, 3, 3, 1, 1)
    )


def critic() -> Any:
    """Return a network from images to one number each."""
    layers: list[Any] = [L.Convolution2D(3, CHANNELS // 8, 3, 1, 1), F.leaky_relu]
    for n in (CHANNELS // 8, CHANNELS // 4, CHANNELS // 2):
        layers += [L.Convolution2D(n, 2 * n, 4, 2, 1), L.BatchNormalization(2 * n), F.leaky_relu]
        layers += [L.Convolution2D(2 * n, 2 * n, 3, 1, 1), L.BatchNormalization(2 * n), F.leaky_relu]
    return chainer.Sequential(*layers, L.Linear(None, 1))


class Dcgan:
    """Both networks with their optimizers, and the step that updates them."""

    def __init__(self, batch: int, one_graph: bool, seed: int) -> None:
        np.random.seed(seed)  # noqa: NPY002 (Chainer draws from it)
        self.optimizers = [
            chainer.optimizers.Adam(2e-4, beta1=0.5).setup(make()) for make in (generator, critic)
        ]
        self._images = np.random.default_rng(seed).random((batch, 3, 32, 32), dtype=np.float32)
        self._one_graph = one_graph

    def step(self) -> None:
        """Update the critic, then the generator."""
        make, judge = self.optimizers
        gen, dis = make.target, judge.target
        if self._one_graph:
            real, made = dis(self._images), dis(gen(self._noise()))
            judge.update(lambda: F.average(F.softplus(-real)) + F.average(F.softplus(made)))
            make.update(lambda: F.average(F.softplus(-made)))
            return
        with chainer.no_backprop_mode():
            fake = gen(self._noise()).array
        judge.update(lambda: F.average(F.softplus(-dis(self._images))) + F.average(F.softplus(dis(fake))))
        make.update(lambda: F.average(F.softplus(-dis(gen(self._noise())))))

    def _noise(self) -> Any:
        return np.random.standard_normal((len(self._images), NOISE)).astype(np.float32)  # noqa: NPY002
