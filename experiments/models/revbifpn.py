"""A small RevBiFPN: V. Chiley et al., *RevBiFPN: The Fully Reversible Bidirectional Feature Pyramid Network*, 2022.

::

    image --> fine   (side / 2)  --(+)---+-------- ... -- mean --+
          |                         up   down                     +--> classes      each (+): half a coupling
          +-> coarse (side / 4)  ---+----+--(+)--- ... -- mean --+

Two resolutions of one image add to each other again and again, each by way of the other: as couplings these fusions are
reversible (section 3, "RevSilo"), and for its backward pass the network keeps the last pair, whatever its depth.
The paper has more resolutions, and squeeze-and-excitation inside its convolutions.
"""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812

from stowplan.papers.mlsys2023.reversible import Reversible, ReversibleSequence


class Up(chainer.Chain):  # type: ignore[misc]
    """From the coarse resolution to the fine one, twice its side: a convolution of 1 × 1, each pixel four times."""

    def __init__(self, coarse: int, fine: int) -> None:
        super().__init__()
        with self.init_scope():
            self.convolution = L.Convolution2D(coarse, fine, 1, nobias=True)
            self.normalization = L.BatchNormalization(fine)

    def forward(self, x: Any) -> Any:
        """Return (batch, fine, 2 × height, 2 × width)."""
        return F.unpooling_2d(F.relu(self.normalization(self.convolution(x))), 2, cover_all=False)


class Down(chainer.Chain):  # type: ignore[misc]
    """From the fine resolution to the coarse one, half its side: a convolution of 3 × 3 at every second pixel."""

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        with self.init_scope():
            self.convolution = L.Convolution2D(fine, coarse, 3, stride=2, pad=1, nobias=True)
            self.normalization = L.BatchNormalization(coarse)

    def forward(self, x: Any) -> Any:
        """Return (batch, coarse, height / 2, width / 2)."""
        return F.relu(self.normalization(self.convolution(x)))


class RevBiFPN(chainer.Chain):  # type: ignore[misc]
    """A classifier of images whose sides are multiples of 4.

    Parameters
    ----------
    depth
        Fusions, each from coarse to fine and back.
    fine, coarse
        Channels of the two resolutions.
    classes
        Classes of images.
    """

    def __init__(self, depth: int = 8, fine: int = 32, coarse: int = 64, classes: int = 10) -> None:
        super().__init__()
        with self.init_scope():
            self.stem = L.Convolution2D(3, fine, 3, stride=2, pad=1)
            self.split = L.Convolution2D(fine, coarse, 3, stride=2, pad=1)
            self.fusions = ReversibleSequence(
                *(Reversible(Up(coarse, fine), Down(fine, coarse)) for _ in range(depth))
            )
            self.head = L.Linear(fine + coarse, classes)

    def predict(self, x: Any) -> Any:
        """Return the scores of (batch, 3, side, side) images: (batch, classes)."""
        fine = F.relu(self.stem(x))
        fine, coarse = self.fusions(fine, F.relu(self.split(fine)))
        return self.head(F.concat([F.mean(fine, axis=(2, 3)), F.mean(coarse, axis=(2, 3))]))

    def forward(self, x: Any, t: Any) -> Any:
        """Return the loss."""
        return F.softmax_cross_entropy(self.predict(x), t)
