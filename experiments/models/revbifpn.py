"""A small RevBiFPN: V. Chiley et al., *RevBiFPN: The Fully Reversible Bidirectional Feature Pyramid Network*, 2022.

::

    image --> fine   (side / 2)  ------+-------(+)-- ... -- mean --+
          |                           down      up                 +--> classes      each (+): half a coupling
          +-> coarse (side / 4)  -----(+)---+---+--- ... -- mean --+

Any number of resolutions of one image, each half the side of the one before, add to each other again and again: as
couplings these fusions are reversible (section 3, "RevSilo"), and for its backward pass the network keeps the last
ones, whatever its depth. The paper has squeeze-and-excitation inside its convolutions, and widens its resolutions less.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812

from stowplan.papers.mlsys2023.reversible import ReversibleSequence, RevSilo

from .vgg import Normalized


class RevBiFPN(chainer.Chain):  # type: ignore[misc]
    """A classifier of images whose sides are multiples of 2 to the power of the number of resolutions.

    Parameters
    ----------
    depth
        Fusions, each down to the coarsest resolution and back up.
    channels
        Of each resolution, the finest first.
    classes
        Classes of images.
    reversible
        Whether the backward pass reconstructs what fusions were made of; else they are kept, as by any network.
    """

    def __init__(
        self, depth: int = 8, channels: Sequence[int] = (32, 64), classes: int = 10, reversible: bool = True
    ) -> None:
        super().__init__()
        self.reversible = reversible

        def between(source: int, target: int) -> chainer.Chain:
            before, after, times = channels[source], channels[target], 2 ** abs(target - source)
            if source < target:  # to a coarser resolution: a convolution at every so many pixels
                down = L.Convolution2D(before, after, times + 1, times, times // 2, nobias=True)
                return Normalized(down, after)
            up = Normalized(L.Convolution2D(before, after, 1, nobias=True), after)
            return chainer.Sequential(up, lambda x: F.unpooling_2d(x, times, cover_all=False))

        with self.init_scope():
            widths = (3, *channels)
            self.stems = chainer.ChainList(
                *(L.Convolution2D(a, b, 3, stride=2, pad=1) for a, b in pairwise(widths))
            )
            self.fusions = ReversibleSequence(*(RevSilo(len(channels), between) for _ in range(depth)))
            self.head = L.Linear(sum(channels), classes)

    def predict(self, x: Any) -> Any:
        """Return the scores of (batch, 3, side, side) images: (batch, classes)."""
        streams = []
        for stem in self.stems:
            x = F.relu(stem(x))
            streams.append(x)
        if self.reversible:
            streams = self.fusions(*streams)
        else:
            for target, source, function, _ in self.fusions.steps():
                streams[target] = streams[target] + function(streams[source])
        return self.head(F.concat([F.mean(one, axis=(2, 3)) for one in streams]))

    def forward(self, x: Any, t: Any) -> Any:
        """Return the loss."""
        return F.softmax_cross_entropy(self.predict(x), t)
