"""The networks of the experiments, from their papers, in Chainer.

Each is a chain with ``forward(*batch)``, the loss, and ``predict(x)``, the answer. AlexNet, GoogLeNet and ResNet-50
are the demo's (`stowplan.insight.demo.models`). Chainer is imported when a network is built, after
`stowplan.compat.enable_chainer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

Kind = Literal["images", "tiles", "sentences", "padded", "words"]


@dataclass(frozen=True)
class Model:
    """What the experiments know of a network without importing it.

    Attributes
    ----------
    name, title
        For commands and for people.
    place
        Module and class.
    kind
        What it reads: images with a label each; grey tiles with a class for each pixel; pairs of sentences, as lists
        or padded; words and those that follow them.
    batches
        Batch sizes for training, those of Sekiyama et al. 2018, section 5. Inference has a batch of 1.
    optimizer
        The name of Chainer's.
    most_indexed
        The largest batch whose columns Chainer's own convolution on a device can index, with 32 bits; None: those of
        `batches` can be.
    """

    name: str
    title: str
    place: tuple[str, str]
    kind: Kind
    batches: tuple[int, ...] = (32, 64, 128)
    optimizer: str = "MomentumSGD"
    most_indexed: int | None = None

    @property
    def network(self) -> Any:
        """The class; imports Chainer."""
        module, name = self.place
        return getattr(import_module(module), name)


def _own(module: str, name: str) -> tuple[str, str]:
    return f"{__name__}.{module}", name


_DEMO = "stowplan.insight.demo.models"
_INCEPTION = _own("inception_resnet", "InceptionResNetV2")
_SENTENCES = (32, 64, 128, 256)

MODELS = {
    model.name: model
    for model in (
        Model("alexnet", "AlexNet", (_DEMO, "AlexNet"), "images"),
        Model("googlenet", "GoogLeNet", (_DEMO, "GoogLeNet"), "images"),
        Model("resnet50", "ResNet-50", (_DEMO, "ResNet50"), "images"),
        Model("inception-resnet", "Inception-ResNet v2", _INCEPTION, "images"),
        Model("unet", "U-Net", _own("unet", "UNet"), "tiles", most_indexed=47),
        Model("seq2seq", "seq2seq", _own("seq2seq", "Seq2seq"), "sentences", _SENTENCES, "Adam"),
        Model("transformer", "Transformer", _own("transformer", "Transformer"), "padded", optimizer="Adam"),
    )
}

VGG = Model("vgg", "VGG-16", _own("vgg", "VGG"), "images", batches=(16,))
"""A network of `experiments.first_steps` alone."""

PTB = Model("ptb", "ptb", _own("ptb", "LanguageModel"), "words", batches=(20,), optimizer="SGD")
"""A network of `experiments.device` alone."""
