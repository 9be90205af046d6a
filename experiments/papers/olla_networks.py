"""Four networks of OLLA's that have no graph in tests/data, and ROAM's GPT2-XL: training steps, traced by PyTorch.

MNASNet 1.0 (Tan et al. 2019, figure 7) and ResNet3D-18 (Tran et al. 2018, table 1) are written out here; ViT-B/16,
XLM-R base and GPT2-XL are transformers' configurations. Images have 224 pixels, clips 16 frames of 112, texts 64 tokens
(GPT2-XL's 1,024, as in ROAM). A step ends with SGD without momentum, as in tests/data/graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.scheduling import StepGraph
from stowplan.torch import graph, trace_training

MNASNET = (
    *((3, 3, 24, 2, 3), (3, 5, 40, 2, 3), (6, 5, 80, 2, 3)),
    *((6, 3, 96, 1, 2), (6, 5, 192, 2, 4), (6, 3, 320, 1, 1)),
)
"""Expansion, kernel, channels, stride of the first and number of the inverted residuals."""
TOKENS = 64


def _normed(width: int, made: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(width, made, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(made)]


def _separable(width: int, inner: int, made: int, kernel: int, stride: int) -> nn.Sequential:
    layers = [*_normed(width, inner), nn.ReLU()] if inner > width else []
    layers += [*_normed(inner, inner, kernel, stride, inner), nn.ReLU(), *_normed(inner, made)]
    return nn.Sequential(*layers)


class _Residual(nn.Module):
    def __init__(self, inner: nn.Module, beside: nn.Module, activation: bool = False) -> None:
        super().__init__()
        self.inner, self.beside, self.activation = inner, beside, activation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x) + self.beside(x)
        return F.relu(y) if self.activation else y


def mnasnet() -> nn.Module:
    """Return MNASNet 1.0."""
    layers = [*_normed(3, 32, 3, 2), nn.ReLU(), _separable(32, 32, 16, 3, 1)]
    width = 16
    for expansion, kernel, channels, stride, count in MNASNET:
        for k in range(count):
            block = _separable(width, expansion * width, channels, kernel, stride if k == 0 else 1)
            layers.append(block if k == 0 else _Residual(block, nn.Identity()))
            width = channels
    layers += [*_normed(320, 1280), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


def resnet3d() -> nn.Module:
    """Return ResNet3D-18."""

    def norm(
        *sizes: int, stride: int | tuple[int, ...] = 1, kernel: int | tuple[int, ...] = 3, pad: Any = 1
    ) -> list[Any]:
        return [nn.Conv3d(*sizes, kernel, stride, pad, bias=False), nn.BatchNorm3d(sizes[1])]

    layers: list[nn.Module] = [*norm(3, 64, stride=(1, 2, 2), kernel=(3, 7, 7), pad=(1, 3, 3)), nn.ReLU()]
    width = 64
    for channels in (64, 128, 256, 512):
        for k in range(2):
            stride = 2 if k == 0 and channels > 64 else 1
            shortcut = norm(width, channels, stride=stride, kernel=1, pad=0) if stride > 1 else []
            inner = nn.Sequential(*norm(width, channels, stride=stride), nn.ReLU(), *norm(channels, channels))
            layers.append(_Residual(inner, nn.Sequential(*shortcut), activation=True))
            width = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(512, 400))


def _images(batch: int) -> tuple[Tensor, ...]:
    return (torch.zeros(batch, 3, 224, 224),)


def _texts(batch: int, length: int = TOKENS) -> tuple[Tensor, ...]:
    return (torch.zeros(batch, length, dtype=torch.int64),)


def _xlmr() -> nn.Module:
    how = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    sizes = {"vocab_size": 250_002, "max_position_embeddings": 514, "type_vocab_size": 1}
    return transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**sizes, **how))


def _gpt2_xl() -> nn.Module:
    how = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return transformers.GPT2Model(transformers.GPT2Config(n_embd=1600, n_layer=48, n_head=25, **how))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Tensor, ...]]]] = {
    "mnasnet": (mnasnet, _images),
    "resnet3d_18": (resnet3d, lambda batch: (torch.zeros(batch, 3, 16, 112, 112),)),
    "vit_b_16": (lambda: transformers.ViTModel(transformers.ViTConfig(), add_pooling_layer=False), _images),
    "xlm_r_base": (_xlmr, _texts),
}


def _loss(found: Any) -> Tensor:
    return (found if isinstance(found, Tensor) else found[0]).float().square().mean()


def step(name: str, batch: int) -> StepGraph:
    """Return the step graph of a network's training step."""
    make, inputs = NETWORKS[name]
    return traced(make, inputs(batch))


def gpt2_xl() -> StepGraph:
    """Return the step graph of GPT2-XL's training step with 1,024 tokens."""
    return traced(_gpt2_xl, _texts(1, 1024))


def traced(make: Callable[[], nn.Module], inputs: tuple[Tensor, ...]) -> StepGraph:
    """Trace a training step without computing it."""
    return graph(trace_training(make().train(), inputs, _loss, learning_rate=0.01))
