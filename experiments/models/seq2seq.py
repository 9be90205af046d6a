"""A sequence-to-sequence network of stacked LSTMs (Sutskever et al. 2014), as in Chainer's example of that name."""

from __future__ import annotations

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's custom)
import chainer.links as L  # noqa: N812
import numpy as np
import numpy.typing as npt

Sentences = list[npt.NDArray[np.int32]]


class Seq2seq(chainer.Chain):
    """Encoder and decoder of `layers` LSTMs with `units` units, over `words` words.

    Called with two lists of sentences, int32 (length,), it returns the loss of the second given the first.
    """

    def __init__(self, layers: int = 2, words: int = 2000, units: int = 128) -> None:
        super().__init__()
        with self.init_scope():
            self.embed_source = L.EmbedID(words, units)
            self.embed_target = L.EmbedID(words, units)
            self.encoder = L.NStepLSTM(layers, units, units, 0.1)
            self.decoder = L.NStepLSTM(layers, units, units, 0.1)
            self.output = L.Linear(units, words)

    def forward(self, source: Sentences, target: Sentences) -> chainer.Variable:
        """Return the loss, a scalar."""
        hidden, cell, _ = self.encoder(None, None, _embed(self.embed_source, source))
        _, _, outputs = self.decoder(hidden, cell, _embed(self.embed_target, target))
        return F.softmax_cross_entropy(self.output(F.concat(outputs, axis=0)), F.concat(target, axis=0))


def _embed(embed: L.EmbedID, sentences: Sentences) -> list[chainer.Variable]:
    ends = np.cumsum([len(sentence) for sentence in sentences[:-1]])
    return F.split_axis(embed(F.concat(sentences, axis=0)), ends, 0)


def sentence_pairs(rng: np.random.Generator, batch: int, words: int = 2000) -> tuple[Sentences, Sentences]:
    """Draw `batch` pairs of sentences of log-normal lengths (median 16, sigma 0.6), cut to 3 to 50 words."""
    lengths = np.clip(rng.lognormal(2.8, 0.6, (2, batch)).astype(int), 3, 50)
    source, target = ([rng.integers(0, words, n).astype(np.int32) for n in row] for row in lengths)
    return source, target
