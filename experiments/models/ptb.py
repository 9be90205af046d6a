"""A language model of stacked LSTMs, as in Chainer's example ``ptb``.

W. Zaremba, I. Sutskever, O. Vinyals, *Recurrent Neural Network Regularization*, 2014: the small network of section
4.1, 200 units unrolled over 20 words, with dropout between its layers (section 3.2). The vocabulary is the
experiments'. The LSTMs' state is carried from step to step; the graph behind it is not (truncated backpropagation).
"""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812


class LanguageModel(chainer.Chain):  # type: ignore[misc]
    """Predicts each word from those before it, with `layers` LSTMs of `units` units, over `words` words.

    Called with words and the words that follow them, both int32 (batch, length), it returns the loss.
    """

    length = 20
    """Words of an example, over which the network is unrolled."""

    def __init__(self, layers: int = 2, words: int = 2000, units: int = 200) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(words, units)
            self.layers = chainer.ChainList(*(L.LSTM(units, units) for _ in range(layers)))
            self.output = L.Linear(units, words)

    def forward(self, words: Any, following: Any) -> Any:
        """Return the loss, a scalar: the sum over the words."""
        loss: Any = 0
        for place in range(words.shape[1]):
            loss += F.softmax_cross_entropy(self._next(words[:, place]), following[:, place])
        self._cut()
        return loss

    def predict(self, words: Any) -> Any:
        """Return the scores of the word that follows the last one, (batch, words)."""
        for place in range(words.shape[1]):
            scores = self._next(words[:, place])
        self._cut()
        return scores

    def _next(self, words: Any) -> Any:
        hidden = self.embed(words)
        for layer in self.layers:
            hidden = layer(F.dropout(hidden))
        return self.output(F.dropout(hidden))

    def _cut(self) -> None:
        """Keep the state, and nothing of how it was computed."""
        for layer in self.layers:
            layer.set_state(chainer.Variable(layer.c.array), chainer.Variable(layer.h.array))
