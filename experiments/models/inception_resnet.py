"""Inception-ResNet v2, in the form that its authors released (TF-Slim, Keras).

C. Szegedy, S. Ioffe, V. Vanhoucke, A. Alemi, *Inception-v4, Inception-ResNet and the Impact of Residual Connections on
Learning*, arXiv 1602.07261.

::

    stem -> mixed 5b -> 10 x block 35 -> reduction -> 20 x block 17 -> reduction -> 10 x block 8 -> 1 x 1 -> classes
    35 x 35              35 x 35, 320                 17 x 17, 1088                 8 x 8, 2080

A block adds its scaled branches to what came in. Every convolution is normalized (without a factor) and rectified,
but for the last one of a block.
"""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812

CLASSES = 1000
Shape = tuple[int, int]


class Convolution(chainer.Chain):  # type: ignore[misc]
    """Convolution, normalization, rectification; ``"same"`` sizes unless `pad` is 0."""

    def __init__(
        self, before: int, channels: int, kernel: int | Shape, stride: int = 1, pad: int | None = None
    ) -> None:
        super().__init__()
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        around = (height // 2, width // 2) if pad is None else pad
        with self.init_scope():
            self.convolution = L.Convolution2D(before, channels, (height, width), stride, around, nobias=True)
            self.normalization = L.BatchNormalization(channels, decay=0.9997, eps=1e-3, use_gamma=False)

    def forward(self, x: Any) -> Any:
        """Return (batch, channels, height, width)."""
        return F.relu(self.normalization(self.convolution(x)))


class Branches(chainer.ChainList):  # type: ignore[misc]
    """Chains beside each other, each a list of convolutions; what they return is joined along the channels."""

    def __init__(self, *branches: list[Convolution]) -> None:
        super().__init__(*(chainer.Sequential(*branch) for branch in branches))

    def forward(self, x: Any, *more: Any) -> Any:
        """Return the joined results of all branches, and `more` of the same size."""
        return F.concat([*(branch(x) for branch in self), *more])


class Block(chainer.Chain):  # type: ignore[misc]
    """A residual block: ``relu(x + scale * up(branches(x)))``."""

    def __init__(
        self, branches: Branches, joined: int, channels: int, scale: float, last: bool = False
    ) -> None:
        super().__init__()
        self.scale, self.last = scale, last
        with self.init_scope():
            self.branches = branches
            self.up = L.Convolution2D(joined, channels, 1)

    def forward(self, x: Any) -> Any:
        """Return an array of the shape of `x`."""
        y = x + self.scale * self.up(self.branches(x))
        return y if self.last else F.relu(y)


def block_35() -> Block:
    """Return a block of the first kind, on 320 channels."""
    c = Convolution
    branches = Branches(
        [c(320, 32, 1)], [c(320, 32, 1), c(32, 32, 3)], [c(320, 32, 1), c(32, 48, 3), c(48, 64, 3)]
    )
    return Block(branches, 128, 320, 0.17)


def block_17() -> Block:
    """Return a block of the second kind, on 1088 channels."""
    c = Convolution
    branches = Branches([c(1088, 192, 1)], [c(1088, 128, 1), c(128, 160, (1, 7)), c(160, 192, (7, 1))])
    return Block(branches, 384, 1088, 0.1)


def block_8(scale: float = 0.2, last: bool = False) -> Block:
    """Return a block of the third kind, on 2080 channels."""
    c = Convolution
    branches = Branches([c(2080, 192, 1)], [c(2080, 192, 1), c(192, 224, (1, 3)), c(224, 256, (3, 1))])
    return Block(branches, 448, 2080, scale, last)


class InceptionResNetV2(chainer.Chain):  # type: ignore[misc]
    """The network, on images of 299 × 299."""

    insize = 299

    def __init__(self) -> None:
        super().__init__()
        c = Convolution
        with self.init_scope():
            self.stem_1 = chainer.Sequential(c(3, 32, 3, 2, pad=0), c(32, 32, 3, pad=0), c(32, 64, 3))
            self.stem_2 = chainer.Sequential(c(64, 80, 1), c(80, 192, 3, pad=0))
            self.mixed = Branches(
                [c(192, 96, 1)], [c(192, 48, 1), c(48, 64, 5)], [c(192, 64, 1), c(64, 96, 3), c(96, 96, 3)]
            )
            self.pooled = c(192, 64, 1)
            self.blocks_35 = chainer.Sequential(*(block_35() for _ in range(10)))
            self.reduction_1 = Branches(
                [c(320, 384, 3, 2, pad=0)], [c(320, 256, 1), c(256, 256, 3), c(256, 384, 3, 2, pad=0)]
            )
            self.blocks_17 = chainer.Sequential(*(block_17() for _ in range(20)))
            self.reduction_2 = Branches(
                [c(1088, 256, 1), c(256, 384, 3, 2, pad=0)],
                [c(1088, 256, 1), c(256, 288, 3, 2, pad=0)],
                [c(1088, 256, 1), c(256, 288, 3), c(288, 320, 3, 2, pad=0)],
            )
            self.blocks_8 = chainer.Sequential(*(block_8() for _ in range(9)), block_8(1.0, last=True))
            self.head = c(2080, 1536, 1)
            self.classes = L.Linear(1536, CLASSES)

    def forward(self, x: Any, t: Any) -> Any:
        """Return the loss for images (batch, 3, 299, 299) float32 and labels (batch,) int32."""
        return F.softmax_cross_entropy(self.predict(x), t)

    def predict(self, x: Any) -> Any:
        """Return the scores of the classes, (batch, 1000)."""
        h = _halved(self.stem_2(_halved(self.stem_1(x))))
        h = self.mixed(h, self.pooled(F.average_pooling_2d(h, 3, stride=1, pad=1)))
        h = self.blocks_35(h)
        h = self.blocks_17(self.reduction_1(h, _halved(h)))
        h = self.blocks_8(self.reduction_2(h, _halved(h)))
        h = F.mean(self.head(h), axis=(2, 3))
        return self.classes(F.dropout(h, 0.2))


def _halved(x: Any) -> Any:
    return F.max_pooling_2d(x, 3, stride=2, cover_all=False)
