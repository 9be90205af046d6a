"""Trainings of PyTorch that know nothing of stowplan: each a function from a scale to a step, on the current GPU.

A step gets its number and returns its loss. Mixed precision in bfloat16, AdamW.

==============  ========================================================================
lengths         a decoder, texts of 96 to 1,023 tokens at random
images          ResNet-18, images of 96 to 320 pixels at random
graphs          graph convolutions, graphs of many sizes
one_shape       a decoder, 16 texts of 768 tokens
llama           a stack of Llama's blocks that recomputes each block, one shape
==============  ========================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)
from torch.utils.checkpoint import checkpoint

from stowplan import TorchPool

from ..torch.networks import resnet18

Step = Callable[[int], Tensor]
WAYS = {
    "default": "PyTorch's default",
    "expandable": "expandable segments",
    "unmarked": "stowplan",
    "marked": "stowplan, marked",
}
STEPS = 30
QUICK = 1 / 8
WORDS = 8192


def install(way: str, watched: object) -> TorchPool | None:
    """Have PyTorch's tensors served in a way, before the first one; return stowplan's pool, None if it is another."""
    if way == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return TorchPool(device="cuda") if "marked" in way else None


class Block(nn.Module):
    """Llama's block: normalized by root mean squares, causal attention, gated perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(width // 64, 1)
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width, False), nn.Linear(width, width, False)
        self.gates = nn.Linear(width, 8 * width // 3 * 2, False)
        self.down = nn.Linear(8 * width // 3, width, False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, length, width) to the same."""
        split = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        y = F.scaled_dot_product_attention(*split.unbind(2), is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.gates(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """Blocks over words; the head has the embedding's weights."""

    def __init__(self, width: int, blocks: int, again: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm, self.again = nn.RMSNorm(width), again
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        """Map (N, length) to (N, WORDS, length)."""
        x = self.words(words)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return (self.norm(x) @ self.words.weight.T).transpose(1, 2)


class Convolutions(nn.Module):
    """Graph convolutions: the mean over neighbours, then a linear map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Map (nodes, width) over edges from `source` to `target` to the same."""
        for layer in self.layers:
            x = F.gelu(layer(torch.zeros_like(x).index_add(0, target, x[source])))
        return x


def training(model: nn.Module, batch: Callable[[np.random.RandomState], tuple[Any, ...]]) -> Step:
    """Return the step of a training by cross entropy; `batch` draws a model's inputs, and the classes behind them."""
    optimizer = torch.optim.AdamW(model.cuda().parameters())

    def step(number: int) -> Tensor:
        *inputs, classes = (part.cuda() for part in batch(np.random.RandomState(number)))
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(*inputs), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _texts(count: int, length: Callable[[np.random.RandomState], int]) -> Callable[..., tuple[Tensor, ...]]:
    def draw(rng: np.random.RandomState) -> tuple[Tensor, ...]:
        words = torch.from_numpy(rng.randint(WORDS, size=(count, length(rng) + 1)))
        return words[:, :-1], words[:, 1:]

    return draw


def _images(rng: np.random.RandomState) -> tuple[Tensor, ...]:
    side = int(rng.randint(3, 11)) * 32
    images = torch.from_numpy(rng.rand(16, 3, side, side).astype("f"))
    return images, torch.from_numpy(rng.randint(1000, size=16))


def _graph(width: int) -> Callable[..., tuple[Tensor, ...]]:
    def draw(rng: np.random.RandomState) -> tuple[Tensor, ...]:
        nodes = int(rng.lognormal(np.log(80 * width), 0.5))
        ends = torch.from_numpy(rng.randint(nodes, size=(2, 8 * nodes)))
        x = torch.from_numpy(rng.rand(nodes, width).astype("f"))
        return x, *ends, torch.from_numpy(rng.randint(width, size=nodes))

    return draw


PROGRAMS: dict[str, Callable[[float], Step]] = {
    "lengths": lambda scale: training(
        Decoder(int(768 * scale), 12, False), _texts(8, lambda rng: int(rng.randint(96, 1024)))
    ),
    "images": lambda scale: training(resnet18(int(64 * scale)), _images),
    "graphs": lambda scale: training(Convolutions(int(512 * scale)), _graph(int(512 * scale))),
    "one_shape": lambda scale: training(Decoder(int(768 * scale), 12, False), _texts(16, lambda rng: 768)),
    "llama": lambda scale: training(Decoder(int(2048 * scale), 16, True), _texts(4, lambda rng: 2048)),
}
