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
    """

    name: str
    title: str
    place: tuple[str, str]
    kind: Kind
    batches: tuple[int, ...] = (32, 64, 128)
    optimizer: str = "MomentumSGD"

    @property
    def network(self) -> Any:
        """The class; imports Chainer."""
        module, name = self.place
        return getattr(import_module(module), name)

    @property
    def example_bytes(self) -> int:
        """Bytes of an example's input, at the least; imports Chainer."""
        if self.kind in ("sentences", "padded", "words"):
            return 4
        side: int = self.network.insize
        return 4 * side**2 * (1 if self.kind == "tiles" else 3)


_DEMO = "stowplan.insight.demo.models"

MODELS = {
    model.name: model
    for model in (
        Model("alexnet", "AlexNet", (_DEMO, "AlexNet"), "images"),
        Model("googlenet", "GoogLeNet", (_DEMO, "GoogLeNet"), "images"),
        Model("resnet50", "ResNet-50", (_DEMO, "ResNet50"), "images"),
        Model(
            "inception-resnet",
            "Inception-ResNet v2",
            (f"{__name__}.inception_resnet", "InceptionResNetV2"),
            "images",
        ),
        Model("unet", "U-Net", (f"{__name__}.unet", "UNet"), "tiles"),
        Model(
            "seq2seq",
            "seq2seq",
            (f"{__name__}.seq2seq", "Seq2seq"),
            "sentences",
            batches=(32, 64, 128, 256),
            optimizer="Adam",
        ),
        Model(
            "transformer",
            "Transformer",
            (f"{__name__}.transformer", "Transformer"),
            "padded",
            optimizer="Adam",
        ),
    )
}

VGG = Model("vgg", "VGG-16", (f"{__name__}.vgg", "VGG"), "images", batches=(16,))
"""A network of `experiments.first_steps` alone."""

PTB = Model("ptb", "ptb", (f"{__name__}.ptb", "LanguageModel"), "words", batches=(20,), optimizer="SGD")
"""A network of `experiments.device` alone."""
