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

from .vgg import Normalized

CLASSES = 1000


def convolution(
    before: int, channels: int, kernel: int | tuple[int, int], stride: int = 1, pad: int | None = None
) -> Normalized:
    """Return a convolution, its normalization and rectification; ``"same"`` sizes unless `pad` is 0."""
    height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    around = (height // 2, width // 2) if pad is None else pad
    link = L.Convolution2D(before, channels, (height, width), stride, around, nobias=True)
    return Normalized(link, channels, decay=0.9997, eps=1e-3, use_gamma=False)


def chain(before: int, *convolutions: tuple[Any, ...]) -> chainer.Sequential:
    """Return convolutions one after another, each told by its channels, its kernel, and what `convolution` takes."""
    widths = [before, *(channels for channels, *_ in convolutions)]
    return chainer.Sequential(*(convolution(n, *row) for n, row in zip(widths, convolutions, strict=False)))


class Branches(chainer.ChainList):  # type: ignore[misc]
    """Chains beside each other, each a list of convolutions; what they return is joined along the channels."""

    def __init__(self, before: int, *branches: list[tuple[Any, ...]]) -> None:
        super().__init__(*(chain(before, *branch) for branch in branches))
        self.joined = sum(branch[-1][0] for branch in branches)

    def forward(self, x: Any, *more: Any) -> Any:
        """Return the joined results of all branches, and `more` of the same size."""
        return F.concat([*(branch(x) for branch in self), *more])


BRANCHES: dict[int, tuple[list[tuple[Any, ...]], ...]] = {
    320: ([(32, 1)], [(32, 1), (32, 3)], [(32, 1), (48, 3), (64, 3)]),
    1088: ([(192, 1)], [(128, 1), (160, (1, 7)), (192, (7, 1))]),
    2080: ([(192, 1)], [(192, 1), (224, (1, 3)), (256, (3, 1))]),
}
"""The branches of a block, by the channels that it reads: for each convolution its channels and kernel."""


class Block(chainer.Chain):  # type: ignore[misc]
    """A residual block: ``relu(x + scale * up(branches(x)))``."""

    def __init__(self, channels: int, scale: float, last: bool = False) -> None:
        super().__init__()
        self.scale, self.last = scale, last
        with self.init_scope():
            self.branches = Branches(channels, *BRANCHES[channels])
            self.up = L.Convolution2D(self.branches.joined, channels, 1)

    def forward(self, x: Any) -> Any:
        """Return an array of the shape of `x`."""
        y = x + self.scale * self.up(self.branches(x))
        return y if self.last else F.relu(y)


class InceptionResNetV2(chainer.Chain):  # type: ignore[misc]
    """The network, on images of 299 × 299."""

    insize = 299

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.stem_1 = chain(3, (32, 3, 2, 0), (32, 3, 1, 0), (64, 3))
            self.stem_2 = chain(64, (80, 1), (192, 3, 1, 0))
            self.mixed = Branches(192, [(96, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)])
            self.pooled = convolution(192, 64, 1)
            self.blocks_35 = chainer.Sequential(*(Block(320, 0.17) for _ in range(10)))
            self.reduction_1 = Branches(320, [(384, 3, 2, 0)], [(256, 1), (256, 3), (384, 3, 2, 0)])
            self.blocks_17 = chainer.Sequential(*(Block(1088, 0.1) for _ in range(20)))
            others = [(256, 1), (288, 3, 2, 0)], [(256, 1), (288, 3), (320, 3, 2, 0)]
            self.reduction_2 = Branches(1088, [(256, 1), (384, 3, 2, 0)], *others)
            self.blocks_8 = chainer.Sequential(*(Block(2080, 0.2) for _ in range(9)), Block(2080, 1.0, True))
            self.head = convolution(2080, 1536, 1)
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
