"""VGG-16 with batch normalization, for images of 32 pixels, as in Chainer's example ``cifar``.

K. Simonyan, A. Zisserman, *Very Deep Convolutional Networks for Large-Scale Image Recognition*, 2015: configuration D,
with S. Liu and W. Deng's changes for small images (2015): batch normalization, dropout, a head of one hidden layer.
"""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812

BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""Channels of the convolutions between two poolings."""


class VGG(chainer.Chain):  # type: ignore[misc]
    """Thirteen convolutions in five blocks, and two layers; returns the loss."""

    insize = 32

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        with self.init_scope():
            self.blocks = chainer.ChainList(*(chainer.ChainList(*map(_layer, block)) for block in BLOCKS))
            self.hidden = Normalized(L.Linear(None, 512, nobias=True), 512)
            self.last = L.Linear(512, classes, nobias=True)

    def forward(self, x: Any, t: Any) -> Any:
        """Return the loss of images (batch, 3, 32, 32) float32 and labels."""
        for block in self.blocks:
            for layer in block:
                x = layer(x)
                if layer is not block[-1]:
                    x = F.dropout(x, 0.4)
            x = F.max_pooling_2d(x, 2, 2)
        x = self.hidden(F.dropout(x, 0.5))
        return F.softmax_cross_entropy(self.last(F.dropout(x, 0.5)), t)


class Normalized(chainer.Chain):  # type: ignore[misc]
    """A link, whose outputs are normalized over the batch, and rectified."""

    def __init__(self, link: Any, width: int, **options: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.link, self.norm = link, L.BatchNormalization(width, **options)

    def forward(self, x: Any) -> Any:
        """Return an array of the shape of the link's."""
        return F.relu(self.norm(self.link(x)))


def _layer(channels: int) -> Normalized:
    return Normalized(L.Convolution2D(None, channels, 3, pad=1, nobias=True), channels)
