"""A sequence-to-sequence network of stacked LSTMs, as in Chainer's example of that name.

I. Sutskever, O. Vinyals, Q. Le, *Sequence to Sequence Learning with Neural Networks*, NIPS 2014. Theirs has 4 layers of
1000 units and 160,000 and 80,000 words; the experiments' is narrower, so that some hundred steps take minutes without
a GPU.
"""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812
import numpy as np
import numpy.typing as npt

Sentences = list[npt.NDArray[np.int32]]

BEGIN = 0
GENERATED = 100
"""Words that inference generates, whatever they are, as in Sekiyama et al. 2018, section 5."""


class Seq2seq(chainer.Chain):  # type: ignore[misc]
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

    def forward(self, source: Sentences, target: Sentences) -> Any:
        """Return the loss, a scalar."""
        hidden, cell, _ = self.encoder(None, None, _embed(self.embed_source, source))
        _, _, outputs = self.decoder(hidden, cell, _embed(self.embed_target, target))
        return F.softmax_cross_entropy(self.output(F.concat(outputs, axis=0)), F.concat(target, axis=0))

    def predict(self, source: Sentences) -> Any:
        """Translate sentences; return (sentences, 100) int32."""
        hidden, cell, _ = self.encoder(None, None, _embed(self.embed_source, source))
        words = [self.xp.full(len(source), BEGIN, np.int32)]
        for _ in range(GENERATED):
            each = F.split_axis(self.embed_target(words[-1]), len(source), 0)
            hidden, cell, outputs = self.decoder(hidden, cell, each)
            scores = self.output(F.concat(outputs, axis=0))
            words.append(scores.array.argmax(axis=1).astype(np.int32))
        return self.xp.stack(words[1:], axis=1)


def _embed(embed: Any, sentences: Sentences) -> Any:
    ends = np.cumsum([len(sentence) for sentence in sentences[:-1]])
    return F.split_axis(embed(F.concat(sentences, axis=0)), ends, 0)
