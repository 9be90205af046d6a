"""The Transformer: A. Vaswani et al., *Attention Is All You Need*, NIPS 2017; the base model of table 3.

Encoder and decoder of `layers` layers; what enters an attention or a feed-forward network is added to what comes out
and normalized (section 3.1). One matrix embeds the words of both languages and scores the answer (section 3.4). Words
stand in arrays (batch, words) int32, short sentences filled up with `NONE`. Label smoothing (section 5.4) is left
out.
"""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812
import numpy as np

NONE = -1
BEGIN = 0
GENERATED = 100
"""Words that inference generates."""


class Attention(chainer.Chain):  # type: ignore[misc]
    """Scaled dot-product attention with several heads (section 3.2)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        with self.init_scope():
            self.queries, self.keys = L.Linear(width, width), L.Linear(width, width)
            self.values, self.output = L.Linear(width, width), L.Linear(width, width)

    def look(self, y: Any) -> tuple[Any, Any]:
        """Return keys and values, each (batch, heads, words, width of a head), of `y` (batch, words, width)."""
        return self._split(self.keys, y), self._split(self.values, y)

    def forward(self, x: Any, looked: tuple[Any, Any], hidden: Any) -> Any:
        """Attend from `x` (batch, words, width) to what was looked at, where `hidden` (bool) is not true."""
        keys, values = looked
        scores = F.matmul(self._split(self.queries, x), keys, transb=True) * (keys.shape[3] ** -0.5)
        if hidden is not None:
            hidden = self.xp.broadcast_to(hidden, scores.shape)
            scores = F.where(hidden, self.xp.full(scores.shape, -1e9, scores.dtype), scores)
        heads = F.matmul(F.dropout(F.softmax(scores, axis=3), 0.1), values)
        return self.output(F.reshape(F.transpose(heads, (0, 2, 1, 3)), x.shape), n_batch_axes=2)

    def _split(self, linear: Any, x: Any) -> Any:
        batch, words, width = x.shape
        y = F.reshape(linear(x, n_batch_axes=2), (batch, words, self.heads, width // self.heads))
        return F.transpose(y, (0, 2, 1, 3))


class Layer(chainer.Chain):  # type: ignore[misc]
    """A layer of the encoder, or, with attention to `memory`, of the decoder."""

    def __init__(self, width: int, heads: int, inner: int, decoder: bool) -> None:
        super().__init__()
        with self.init_scope():
            self.own = Attention(width, heads)
            self.other = Attention(width, heads) if decoder else None
            self.widen, self.narrow = L.Linear(width, inner), L.Linear(inner, width)
            self.norms = chainer.ChainList(*(L.LayerNormalization(width) for _ in range(3 if decoder else 2)))

    def forward(
        self, x: Any, looked: tuple[Any, Any], hidden: Any, memory: Any = None, padding: Any = None
    ) -> Any:
        """Return (batch, words, width)."""
        x = self._add(0, x, self.own(x, looked, hidden))
        if self.other is not None:
            x = self._add(1, x, self.other(x, memory, padding))
        inner = F.relu(self.widen(x, n_batch_axes=2))
        return self._add(-1, x, self.narrow(inner, n_batch_axes=2))

    def _add(self, norm: int, x: Any, y: Any) -> Any:
        flat = F.reshape(x + F.dropout(y, 0.1), (-1, x.shape[2]))
        return F.reshape(self.norms[norm](flat), x.shape)


class Transformer(chainer.Chain):  # type: ignore[misc]
    """The encoder-decoder."""

    def __init__(
        self, words: int = 37000, layers: int = 6, width: int = 512, heads: int = 8, inner: int = 2048
    ) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        with self.init_scope():
            self.embed = L.EmbedID(words, width, chainer.initializers.Normal(width**-0.5), ignore_label=NONE)
            self.encoder = chainer.ChainList(*(Layer(width, heads, inner, False) for _ in range(layers)))
            self.decoder = chainer.ChainList(*(Layer(width, heads, inner, True) for _ in range(layers)))

    def forward(self, source: Any, target: Any) -> Any:
        """Return the loss for sentences (batch, words) int32."""
        xp = self.xp
        memory, padding = self._encode(source)
        begin = xp.full((len(target), 1), BEGIN, target.dtype)
        y = self._embed(xp.concatenate([begin, target[:, :-1]], axis=1), 0)
        length = target.shape[1]
        later = xp.triu(xp.ones((length, length), dtype=bool), 1)[None, None]
        for layer in self.decoder:
            y = layer(y, layer.own.look(y), later, layer.other.look(memory), padding)
        return F.softmax_cross_entropy(self._score(y), target.reshape(-1), ignore_label=NONE)

    def predict(self, source: Any) -> Any:
        """Translate sentences (batch, words) word by word; return (batch, 100) int32.

        Keys and values of the words before are kept, in arrays that have room for all of them.
        """
        xp = self.xp
        memory, padding = self._encode(source)
        looked = [layer.other.look(memory) for layer in self.decoder]
        room = (len(source), self.heads, GENERATED, self.width // self.heads)
        kept = [(xp.empty(room, np.float32), xp.empty(room, np.float32)) for _ in looked]
        words = [xp.full((len(source), 1), BEGIN, source.dtype)]
        for position in range(GENERATED):
            y = self._embed(words[-1], position)
            for layer, (keys, values), other in zip(self.decoder, kept, looked, strict=True):
                key, value = layer.own.look(y)
                keys[:, :, position], values[:, :, position] = key.array[:, :, 0], value.array[:, :, 0]
                own = keys[:, :, : position + 1], values[:, :, : position + 1]
                y = layer(y, own, None, other, padding)
            words.append(self._score(y).array.argmax(axis=1).astype(source.dtype)[:, None])
        return xp.concatenate(words[1:], axis=1)

    def _encode(self, source: Any) -> tuple[Any, Any]:
        padding = (source == NONE)[:, None, None, :]
        x = self._embed(source, 0)
        for layer in self.encoder:
            x = layer(x, layer.own.look(x), padding)
        return x, padding

    def _embed(self, words: Any, first: int) -> Any:
        """Embed the words at positions from `first` on (sections 3.4 and 3.5)."""
        places = self.xp.asarray(_positions(first, words.shape[1], self.width))[None]
        embedded = self.embed(words) * self.width**0.5
        return F.dropout(embedded + self.xp.broadcast_to(places, embedded.shape), 0.1)

    def _score(self, y: Any) -> Any:
        return F.linear(F.reshape(y, (-1, self.width)), self.embed.W)


def _positions(first: int, count: int, width: int) -> np.ndarray[Any, Any]:
    angle = np.arange(first, first + count)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(count, width).astype(np.float32)
