"""What the networks read: synthetic images and sentences, by a seed.

Sentences have log-normal lengths (median `MEDIAN` words, sigma `SIGMA`, cut to `SHORTEST` to `LONGEST` words, as in
Sekiyama et al. 2018, section 5; about what news text has), images and tiles normally distributed pixels.

In a step that repeats, a batch of sentences has the longest pair and the median pair in turns, so that batches of 2, 4
and 8 differ in nothing but their number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..models import Model

MEDIAN, SIGMA, SHORTEST, LONGEST = 16.4, 0.6, 3, 50
WORDS = 2000
"""Size of a vocabulary."""
SAMPLE = 1000
"""Number of pairs from which the longest and the median one are taken."""

Words = npt.NDArray[np.int32]
Pair = tuple[Words, Words]
Example = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True)
class Data:
    """Makes examples.

    Attributes
    ----------
    seed
        The seed of everything.
    """

    seed: int = 0

    def examples(self, model: Model, batch: int) -> list[Example]:
        """Return `batch` examples for a step that repeats."""
        rng = np.random.default_rng(self.seed)
        if model.kind in ("sentences", "padded"):
            longest, median = _typical(synthetic_pairs(rng, SAMPLE))
            return [(median, longest)[i % 2 == 0] for i in range(batch)]
        network = model.network
        if model.kind == "words":
            rows = rng.integers(0, WORDS, (batch, network.length + 1)).astype(np.int32)
            return [(row[:-1], row[1:]) for row in rows]
        side = network.insize
        channels = 1 if model.kind == "tiles" else 3
        inputs = list(rng.standard_normal((batch, channels, side, side), dtype=np.float32))
        if model.kind == "tiles":
            return [
                (x, rng.integers(0, 2, (network.outsize, network.outsize)).astype(np.int32)) for x in inputs
            ]
        # Labels are arrays without a dimension: Chainer makes a view of one, and a block of a scalar.
        labels = rng.integers(0, 1000, batch).astype(np.int32)
        return [(x, np.array(label)) for x, label in zip(inputs, labels, strict=True)]

    def mini_batches(self, batch: int, steps: int) -> list[list[Pair]]:
        """Return pairs of sentences for steps that differ."""
        rng = np.random.default_rng(self.seed)
        return [synthetic_pairs(rng, batch) for _ in range(steps)]


def synthetic_pairs(rng: np.random.Generator, count: int) -> list[Pair]:
    """Draw pairs of sentences of log-normal lengths."""
    lengths = np.clip(rng.lognormal(np.log(MEDIAN), SIGMA, (2, count)).astype(int), SHORTEST, LONGEST)
    source, target = ([rng.integers(0, WORDS, n).astype(np.int32) for n in row] for row in lengths)
    return list(zip(source, target, strict=True))


def _typical(pairs: list[Pair]) -> tuple[Pair, Pair]:
    """Return the longest and the median pair."""
    ranked = sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))
    return ranked[-1], ranked[len(ranked) // 2]
