"""The networks of the experiments have the parameters that their papers, or their authors' releases, report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.models import MODELS

pytestmark = pytest.mark.usefixtures("chainer")


@pytest.fixture
def undrawn(chainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters keep their shapes, and nothing draws their values: that takes seconds for tens of millions."""

    def generate(initializer: Any, shape: Any, xp: Any, dtype: Any = None, device: Any = None) -> Any:
        return np.empty(shape, dtype or getattr(initializer, "dtype", None) or np.float32)

    monkeypatch.setattr(chainer.initializers, "generate_array", generate)


PUBLISHED = {
    "alexnet": 60_965_224,  # Caffe's AlexNet, two groups, one device; the paper says 60 million
    "googlenet": 13_378_280,  # Caffe's, both auxiliary classifiers; 6,998,552 without them
    "resnet50": 25_557_032 + 64,  # torchvision's; Chainer's first convolution has a bias
    "inception-resnet": 55_813_192,  # Keras's, trainable
    "unet": 31_030_593 + 65,  # one channel in, one out; the paper's second class takes 64 weights and a bias
}


def parameters(network: Any) -> int:
    return sum(parameter.size for parameter in network.params())


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_as_published(name: str) -> None:
    assert parameters(MODELS[name].network()) == PUBLISHED[name]


@pytest.mark.usefixtures("undrawn")
def test_transformer_has_the_65_million_of_table_3() -> None:
    # The paper rounds; its vocabulary of "about 37000" is not known to the word.
    assert parameters(MODELS["transformer"].network()) == pytest.approx(65e6, rel=0.03)


@pytest.mark.parametrize("name", ["seq2seq", "transformer"])
def test_inference_generates_100_words(name: str, chainer: Any) -> None:
    small: dict[str, dict[str, int]] = {
        "seq2seq": {"layers": 1, "words": 20, "units": 8},
        "transformer": {"words": 20, "layers": 1, "width": 16, "heads": 2, "inner": 32},
    }
    network = MODELS[name].network(**small[name])
    sentences = [np.arange(n, dtype=np.int32) for n in (3, 7)]
    padded = np.array([[0, 1, 2, -1], [3, 4, 5, 6]], np.int32)
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        words = network.predict(sentences if name == "seq2seq" else padded)
    assert words.shape == (2, 100)
    assert words.min() >= 0
    assert words.max() < 20


def test_transformers_see_neither_padding_nor_what_comes_later(chainer: Any) -> None:
    network = MODELS["transformer"].network(words=20, layers=2, width=16, heads=2, inner=32)
    source, target = np.array([[1, 2, 3]], np.int32), np.array([[4, 5, 6]], np.int32)
    longer = np.array([[1, 2, 3, -1, -1]], np.int32), np.array([[4, 5, 6, -1]], np.int32)
    with chainer.using_config("train", False):
        loss = network(source, target).array
        assert network(*longer).array == pytest.approx(loss, rel=1e-5)
        # Word by word, with kept keys and values, it says what one look at all of its own words says.
        words = network.predict(source)[:, :12]
        memory, padding = network._encode(source)
        y = network._embed(np.concatenate([[[0]], words[:, :-1]], axis=1).astype(np.int32), 0)
        later = np.triu(np.ones((12, 12), bool), 1)[None, None]
        for layer in network.decoder:
            y = layer(y, layer.own.look(y), later, layer.other.look(memory), padding)
        assert network._score(y).array.argmax(axis=1).tolist() == words[0].tolist()
