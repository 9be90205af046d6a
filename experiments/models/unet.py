"""U-Net: O. Ronneberger et al., *U-Net: Convolutional Networks for Biomedical Image Segmentation*, MICCAI 2015.

::

    284 -> 280 ------------------------ crop ----------------> 104 -> 100      23 convolutions, none of them padded;
       140 -> 136 --------------------- crop ----------> 56 -> 52              the numbers are the sides of a tile
          68 -> 64 -------------------- crop ----> 32 -> 28
             32 -> 28 ----------------- crop 20 -> 16
                14 -> 10

The paper's tiles have 572 pixels a side, with 388 in the answer; tiles of any size that halves evenly will do.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812

CLASSES = 2
WIDTHS = (64, 128, 256, 512, 1024)


class Pair(chainer.Chain):  # type: ignore[misc]
    """Two convolutions of 3 × 3, each rectified."""

    def __init__(self, before: int, channels: int) -> None:
        super().__init__()
        with self.init_scope():
            self.first = L.Convolution2D(before, channels, 3)
            self.second = L.Convolution2D(channels, channels, 3)

    def forward(self, x: Any) -> Any:
        """Return (batch, channels, height - 4, width - 4)."""
        return F.relu(self.second(F.relu(self.first(x))))


class UNet(chainer.Chain):  # type: ignore[misc]
    """The network, on grey tiles of 284 × 284; its answer is 100 × 100."""

    insize, outsize = 284, 100

    def __init__(self) -> None:
        super().__init__()
        widths = tuple(pairwise(WIDTHS))
        with self.init_scope():
            self.down = chainer.ChainList(Pair(1, WIDTHS[0]), *(Pair(a, b) for a, b in widths))
            self.grow = chainer.ChainList(*(L.Deconvolution2D(b, a, 2, stride=2) for a, b in widths))
            self.up = chainer.ChainList(*(Pair(b, a) for a, b in widths))
            self.classes = L.Convolution2D(WIDTHS[0], CLASSES, 1)

    def forward(self, x: Any, t: Any) -> Any:
        """Return the loss for tiles (batch, 1, 284, 284) float32 and classes (batch, 100, 100) int32."""
        return F.softmax_cross_entropy(self.predict(x), t)

    def predict(self, x: Any) -> Any:
        """Return the scores of both classes for each pixel, (batch, 2, 100, 100)."""
        seen = [self.down[0](x)]
        for pair in self.down[1:]:
            seen.append(pair(F.max_pooling_2d(seen[-1], 2)))
        h = F.dropout(seen.pop())
        for grow, pair in zip(self.grow[::-1], self.up[::-1], strict=True):
            h = grow(h)
            h = pair(F.concat([_cropped(seen.pop(), h.shape[2]), h]))
        return self.classes(h)


def _cropped(x: Any, side: int) -> Any:
    edge = (x.shape[2] - side) // 2
    return x[:, :, edge : edge + side, edge : edge + side]
