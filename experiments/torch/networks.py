"""Networks in plain PyTorch, each with batches that it can learn from: none knows of stowplan.

========  =======================================  ==================================  ============================
network   from                                     measured                            quick
========  =======================================  ==================================  ============================
resnet18  He et al. 2015, ImageNet's               4 images of 96 x 96                 a quarter of the channels
unet      Ronneberger et al. 2015, padded          2 images of 128 x 128, 32 channels  96 x 96, 8 channels
gpt       Radford et al. 2019; tied head           2 x 128 tokens, 4 blocks of 768     2 blocks of 128
lstm      Zaremba et al. 2014, 2 layers            32 x 64 tokens, 256 units           32 x 16 tokens, 128 units
========  =======================================  ==================================  ============================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Network:
    """A network, and what it is trained on.

    Attributes
    ----------
    build
        From a width to a module that returns logits, classes in dimension 1.
    batch
        From a size to inputs and classes, random: (N, 3, size, size) float32 and (N,) or (N, size, size), or
        (N, size) and (N, size).
    width, size
        For measuring.
    quick_width, quick_size
        For trying: a step takes some tens of milliseconds, and its blocks are still large.
    """

    build: Callable[[int], nn.Module]
    batch: Callable[[int], Batch]
    width: int
    size: int
    quick_width: int
    quick_size: int


def _conv(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Residual(nn.Module):
    """The basic block: two convolutions beside the identity, or a projection of another shape."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = _conv(inputs, outputs, 3, stride), _conv(outputs, outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else _conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y = self.second(F.relu(self.first(x), inplace=True))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


def resnet18(width: int) -> nn.Module:
    """ResNet-18 for 1000 classes; `width` channels in the first stage."""
    layers: list[nn.Module] = [_conv(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage in range(4):
        outputs = width << stage
        layers += [Residual(inputs, outputs, 2 if stage else 1), Residual(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def images(size: int) -> Batch:
    """Four images, a class each."""
    return torch.randn(4, 3, size, size), torch.randint(1000, (4,))


class UNet(nn.Module):
    """Four levels down, four up, each with what was skipped beside it; two classes for each pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width << level for level in range(4)]
        self.down = nn.ModuleList(self._double(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True))
        self.bottom = self._double(widths[-1], 2 * widths[-1])
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths))
        self.up = nn.ModuleList(self._double(2 * w, w) for w in reversed(widths))
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _double(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            _conv(inputs, outputs), nn.ReLU(inplace=True), _conv(outputs, outputs), nn.ReLU(inplace=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, 3, H, W) to (N, 2, H, W); H and W are multiples of 16."""
        skipped = []
        for down in self.down:
            skipped.append(down(x))
            x = F.max_pool2d(skipped[-1], 2)
        x = self.bottom(x)
        for grow, up, skip in zip(self.grow, self.up, reversed(skipped), strict=True):
            x = up(torch.cat([skip, grow(x)], 1))
        return self.head(x)


def masks(size: int) -> Batch:
    """Two images, a class for each pixel."""
    return torch.randn(2, 3, size, size), torch.randint(2, (2, size, size))


class Attention(nn.Module):
    """Causal self-attention with as many heads as fit with 32 or 64 channels each, then a perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // (64 if width >= 512 else 32)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, length, width) to the same."""
        count, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(count, length, 3, self.heads, -1).transpose(1, 3).unbind(2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(count, length, width))
        return x + self.perceptron(self.norms[1](x))


WORDS = 4096


class Gpt(nn.Module):
    """A decoder over `WORDS` words: four blocks, or two if narrow; the head has the embedding's weights."""

    def __init__(self, width: int, blocks: int | None = None, length: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(length, width)
        blocks = blocks or (4 if width >= 512 else 2)
        self.blocks = nn.Sequential(*(Attention(width) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        """Map (N, length) to (N, WORDS, length)."""
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        return (self.norm(self.blocks(x)) @ self.words.weight.T).transpose(1, 2)


def texts(count: int, words: int = WORDS) -> Callable[[int], Batch]:
    """So many texts, and each shifted by a word."""

    def make(size: int) -> Batch:
        found = torch.randint(words, (count, size + 1))
        return found[:, :-1], found[:, 1:]

    return make


class Lstm(nn.Module):
    """A language model of two recurrent layers over `WORDS` words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """Map (N, length) to (N, WORDS, length)."""
        return self.head(self.layers(self.words(words))[0]).transpose(1, 2)


NETWORKS = {
    "resnet18": Network(resnet18, images, 64, 96, 16, 96),
    "unet": Network(UNet, masks, 32, 128, 8, 96),
    "gpt": Network(Gpt, texts(2), 768, 128, 128, 128),
    "lstm": Network(Lstm, texts(32), 256, 64, 128, 16),
}
