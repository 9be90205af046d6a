"""Networks of sequences as layers of NNTrainer's: a Transformer, and Tacotron 2's decoder.

Shapes are those of the papers that published them: Vaswani et al. 2017 (arXiv 1706.03762), table 3, base, without
embeddings and the vocabulary; Shen et al. 2018 (arXiv 1712.05884), section 2.2, with the frame before given, and
without the convolutions after the last frame. Batches and lengths are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stowplan.papers.nntrainer.layers import Layer, Lifespan, Merge
from stowplan.papers.nntrainer.shapes import linear, unroll

FLOAT = 4
FORWARD = Lifespan.FORWARD
BOTH = Lifespan.FORWARD | Lifespan.DERIVATIVE
IN_PLACE: dict[str, Any] = {"needs_input": FORWARD, "merge": Merge.IN_PLACE}
POINTWISE: dict[str, Any] = {**IN_PLACE, "needs_output": BOTH}
"""What works on single elements, in place, and has its derivative from its output."""


def dropout(name: str, size: int) -> Layer:
    """Zero some elements, in place, by a mask that is kept."""
    return Layer(name, size, temporaries=((size, BOTH),), **IN_PLACE)


def loss(name: str, size: int, *inputs: str) -> Layer:
    """Compare with a label."""
    return Layer(name, size, inputs=inputs or None, needs_input=BOTH)


class _Transformer:
    """Layers of a Transformer, listed one after the other."""

    def __init__(self, batch: int, words: int, width: int, heads: int, inner: int) -> None:
        self.shape, self.heads, self.inner = (batch, words, width), heads, inner
        self.size = FLOAT * batch * words * width
        self.layers: list[Layer] = []

    def attention(self, name: str, source: str, memory: str) -> None:
        """Add attention from `source` to `memory`, what it is added to, and a normalization."""
        batch, words, width = self.shape
        scores = FLOAT * batch * self.heads * words * words
        product: dict[str, Any] = {"needs_input": BOTH, "operations": 2 * batch * words * words * width}
        q, k, v = (f"{name} {part}" for part in ("query", "key", "value"))
        for one, given in ((q, source), (k, memory), (v, memory)):
            self.layers.append(linear(one, self.shape, width, inputs=(given,)))
        self.layers += [
            Layer(f"{name} scores", scores, inputs=(q, k), **product),
            Layer(f"{name} softmax", scores, **POINTWISE),
            dropout(f"{name} weights", scores),
            Layer(f"{name} context", self.size, inputs=(f"{name} weights", v), **product),
            linear(f"{name} out", self.shape, width),
        ]
        self.add(name, source)

    def perceptron(self, name: str, source: str) -> None:
        """Add two fully connected layers, what they are added to, and a normalization."""
        batch, words, width = self.shape
        self.layers += [
            linear(f"{name} in", self.shape, self.inner),
            Layer(f"{name} relu", FLOAT * batch * words * self.inner, **POINTWISE),
            linear(f"{name} out", (batch, words, self.inner), width),
        ]
        self.add(name, source)

    def add(self, name: str, source: str) -> None:
        """Add dropout of the last layer's output, its sum with `source`, and a normalization under this name."""
        weights = (FLOAT * self.shape[-1],) * 2
        self.layers += [
            dropout(f"{name} dropout", self.size),
            Layer(f"{name} sum", self.size, inputs=(f"{name} dropout", source), **IN_PLACE),
            Layer(name, self.size, weights=weights, needs_input=Lifespan.ITERATION),
        ]


def transformer() -> list[Layer]:
    """List a Transformer's encoder and decoder, from embedded words to what the decoder gives for each."""
    net = _Transformer(batch=64, words=64, width=512, heads=8, inner=2048)
    last = {}
    for side in ("encoder", "decoder"):
        net.layers.append(Layer(f"{side} words", net.size, inputs=()))
        source = f"{side} words"
        for k in range(6):
            name = f"{side} {k}"
            net.attention(f"{name} attention", source, source)
            source = f"{name} attention"
            if side == "decoder":
                net.attention(f"{name} cross", source, last["encoder"])
                source = f"{name} cross"
            net.perceptron(name, source)
            source = name
        last[side] = source
    return [*net.layers, loss("loss", net.size)]


def _cell(name: str, batch: int, units: int, features: int, inputs: Sequence[str]) -> list[Layer]:
    """List an LSTM's cell, whose output before is one of the features; `name` is its output."""
    size = FLOAT * batch * units
    return [
        linear(f"{name} gates", (batch, features), 4 * units, inputs=tuple(inputs)),
        Layer(f"{name} state", size, inputs=(f"{name} gates",), needs_input=BOTH),
        Layer(name, size, inputs=(f"{name} gates", f"{name} state"), needs_input=BOTH),
    ]


def tacotron2_decoder() -> list[Layer]:
    """List Tacotron 2's decoder, unrolled over the frames of a spectrogram, from what the encoder gives."""
    batch, frames, symbols = 64, 32, 64
    small, attended, seen = FLOAT * batch * 256, FLOAT * batch * symbols * 128, 2 * batch * symbols * 512
    memory = Layer("memory", FLOAT * batch * symbols * 512, inputs=())
    keys = linear("keys", (batch, symbols, 512), 128)
    step = [
        Layer("frame", FLOAT * batch * 80, inputs=()),
        linear("first", (batch, 80), 256),
        Layer("first relu", small, **POINTWISE),
        dropout("first dropout", small),
        linear("second", (batch, 256), 256),
        Layer("second relu", small, **POINTWISE),
        dropout("second dropout", small),
        linear("location filters", (batch, symbols, 31), 32, inputs=()),
        linear("location", (batch, symbols, 32), 128),
        linear("query", (batch, 1024), 128, inputs=()),
        Layer(
            "energies", attended, inputs=("location", "query", "keys"), needs_input=FORWARD, needs_output=BOTH
        ),
        linear("scores", (batch, symbols, 128), 1),
        Layer("alignment", FLOAT * batch * symbols, **POINTWISE),
        Layer(
            "context", FLOAT * batch * 512, inputs=("alignment", "memory"), needs_input=BOTH, operations=seen
        ),
        *_cell("lower", batch, 1024, 256 + 512 + 1024, ("second dropout", "context")),
        *_cell("upper", batch, 1024, 1024 + 1024, ("lower",)),
        linear("spectrum", (batch, 1536), 80, inputs=("upper", "context")),
        loss("spectrum's loss", FLOAT * batch * 80),
        linear("stop", (batch, 1536), 1, inputs=("upper", "context")),
        loss("stop's loss", FLOAT * batch),
    ]
    before = {"location filters": "alignment", "query": "upper"}
    for cell in ("lower", "upper"):
        before |= {f"{cell} gates": cell, f"{cell} state": f"{cell} state"}
    return [memory, keys, *unroll(step, frames, before)]
