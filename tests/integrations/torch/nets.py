"""Networks of this project's own writing, small, with inputs: regular ones, irregular ones, one with a state."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, normalization, rectifier in place."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Residual(nn.Module):
    """ResNet's basic block; with groups and a gate over channels, RegNet's."""

    def __init__(
        self, inputs: int, outputs: int, stride: int = 1, groups: int = 1, gate: bool = False
    ) -> None:
        super().__init__()
        self.first = conv(inputs, outputs, 3, stride)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.gate = nn.Sequential(nn.Linear(outputs, outputs), nn.Sigmoid()) if gate else None
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.second(self.first(x)))
        if self.gate is not None:
            y = y * self.gate(y.mean((2, 3)))[:, :, None, None]
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


def classifier(body: nn.Module, features: int) -> nn.Sequential:
    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, 10))


def resnet18() -> nn.Module:
    blocks: list[nn.Module] = [conv(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs in ((16, 16), (16, 32), (32, 64), (64, 128)):
        blocks += [Residual(inputs, outputs, 1 if inputs == outputs else 2), Residual(outputs, outputs)]
    return classifier(nn.Sequential(*blocks), 128)


def regnet() -> nn.Module:
    blocks: list[nn.Module] = [conv(3, 16, 3, 2)]
    for inputs, outputs in ((16, 16), (16, 32), (32, 48)):
        blocks += [Residual(inputs, outputs, 2, 8, gate=True), Residual(outputs, outputs, 1, 8, gate=True)]
    return classifier(nn.Sequential(*blocks), 48)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 10))


class RandomlyWired(nn.Module):
    """A random graph: each node sums its inputs and convolves; the loose ends are averaged."""

    def __init__(self, nodes: int, channels: int, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.sources = [
            sorted(draw.sample(range(i), min(i, draw.choice((1, 1, 2, 3))))) for i in range(1, nodes)
        ]
        self.stem = conv(3, channels, 3, 2)
        self.nodes = nn.ModuleList(
            nn.Sequential(nn.ReLU(), nn.Conv2d(channels, channels, 3, 1, 1), nn.BatchNorm2d(channels))
            for _ in self.sources
        )

    def forward(self, x: Tensor) -> Tensor:
        values = [self.stem(x)]
        for sources, node in zip(self.sources, self.nodes, strict=True):
            total = values[sources[0]]
            for source in sources[1:]:
                total = total + values[source]
            values.append(node(total))
        read = {source for sources in self.sources for source in sources}
        ends = [value for i, value in enumerate(values) if i not in read]
        total = ends[0]
        for end in ends[1:]:
            total = total + end
        return total / len(ends)


def randomly_wired() -> nn.Module:
    return classifier(RandomlyWired(24, 12, seed=1), 12)


class Dense(nn.Module):
    """DenseNet's block: each layer reads all before it."""

    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inputs + i * growth),
                nn.ReLU(inplace=True),
                nn.Conv2d(inputs + i * growth, growth, 3, 1, 1, bias=False),
            )
            for i in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


def densenet() -> nn.Module:
    return classifier(
        nn.Sequential(conv(3, 8, 3, 2), Dense(8, 6, 5), conv(38, 16, 1), nn.AvgPool2d(2), Dense(16, 6, 5)), 46
    )


class Decoder(nn.Module):
    """A step of decoding: keys and values are written into caches in place, at a place given, and returned."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 32)
        self.attention = nn.ModuleList(nn.Linear(32, 96) for _ in range(3))
        self.forward_layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3)
        )

    def forward(
        self, token: Tensor, place: Tensor, caches: list[dict[str, Tensor]]
    ) -> tuple[Tensor, list[dict[str, Tensor]]]:
        x = self.embedding(token)
        after = []
        for attention, layers, cache in zip(self.attention, self.forward_layers, caches, strict=True):
            q, k, v = attention(x).view(len(x), 1, 3, 4, 8).transpose(1, 3).unbind(2)
            keys = cache["keys"].index_copy_(2, place, k)
            values = cache["values"].index_copy_(2, place, v)
            y = F.scaled_dot_product_attention(q, keys, values)
            x = x + y.transpose(1, 2).reshape(len(x), 32)
            x = x + layers(x)
            after.append({"keys": keys, "values": values})
        return x @ self.embedding.weight.T, after


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for moment in x.unbind(1):
            state = self.cell(moment, state)
        return self.head(state[0])


def images(size: int = 32) -> tuple[Tensor, ...]:
    return (torch.randn(2, 3, size, size),)


def caches() -> tuple[Any, ...]:
    empty = [{"keys": torch.zeros(2, 4, 6, 8), "values": torch.zeros(2, 4, 6, 8)} for _ in range(3)]
    return torch.tensor([3, 7]), torch.tensor([2]), empty


MAIN = {
    "resnet18": (resnet18, lambda: images(64)),
    "encoder": (encoder, lambda: (torch.randn(2, 12, 32),)),
    "randomly_wired": (randomly_wired, images),
}
BEYOND = {
    "densenet": (densenet, images),
    "regnet": (regnet, images),
    "decoder": (Decoder, caches),
    "recurrent": (Recurrent, lambda: (torch.randn(2, 6, 8),)),
}
NETS: dict[str, Any] = {**MAIN, **BEYOND}


def make(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Make a network and its inputs, the same in each call."""
    torch.manual_seed(0)
    net, inputs = NETS[name]
    return net(), inputs()


def loss(result: Any, *targets: Tensor) -> Tensor:
    """Return the cross entropy with targets, or half the square of all that a network returns."""
    if targets:
        return F.cross_entropy(result.flatten(0, -2), targets[0])
    leaves = torch.utils._pytree.tree_leaves(result)
    return sum((leaf.square().mean() / 2 for leaf in leaves), start=torch.zeros(()))
