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
