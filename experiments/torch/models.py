"""Models that are trained within budgets, made from their configurations: no weights, nothing from a hub.

All at full depth, narrower, with small images and texts, so that a step takes some tenths of a second on a core. Where
queries share keys, transformers' attention by PyTorch's own operator runs others while it is traced: so `llama_2` has
the attention that is written out.

=========  ==========================================================  ===================================
model      from                                                        batch
=========  ==========================================================  ===================================
llama      pytorch#197838's kind: 16 layers of 192 (transformers)      2 x 64 tokens
llama_2    16 layers of 256, grouped queries, bfloat16 (transformers)  2 x 128 tokens
gpt2       12 layers of 192, dropout (transformers)                    4 x 128 tokens
t5         6 + 6 layers of 128, dropout (transformers)                 4 x 64 tokens
vit        12 layers of 192, patches of 8 x 8 (transformers)           8 images of 64 x 64
resnet50   a quarter of the channels (transformers)                    8 images of 96 x 96
densenet   121 layers, growth 8 (own)                                  8 images of 64 x 64
unet       4 levels from 8 channels (`experiments.torch.networks`)     2 images of 96 x 96
lstm       2 layers of 128, dropout, 32 tokens by a cell (own)         32 x 32 tokens
=========  ==========================================================  ===================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from ..measures import output
from ..measures.kept import Row
from .kept import Kept
from .networks import NETWORKS, texts
from .training import Model

CLASSES = 10


def _texts(count: int, length: int, words: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randint(words, (count, length)),)


def _images(count: int, size: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(count, 3, size, size), torch.randint(CLASSES, (count,)))


def _language(model: nn.Module, words: Tensor) -> Tensor:
    found: Tensor = model(input_ids=words, labels=words).loss
    return found


def _classified(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    found: Tensor = model(pixel_values=images, labels=labels).loss
    return found


def _entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def _transformer(name: str, head: str, **configuration: Any) -> Callable[[], nn.Module]:
    """Return what makes a model of transformers from its configuration."""

    def build() -> nn.Module:
        import transformers

        configured = getattr(transformers, f"{name}Config")(**configuration)
        made: nn.Module = getattr(transformers, name + head)(configured)
        return made

    return build


def _llama(width: int, heads: int, groups: int, words: int, attention: str) -> Callable[[], nn.Module]:
    sizes = {"hidden_size": width, "intermediate_size": width * 8 // 3, "num_hidden_layers": 16}
    shared = {"num_attention_heads": heads, "num_key_value_heads": groups, "attn_implementation": attention}
    return _transformer("Llama", "ForCausalLM", vocab_size=words, use_cache=False, **sizes, **shared)


GPT2 = {"n_positions": 128, "n_embd": 192, "n_layer": 12, "n_head": 12, "bos_token_id": 0, "eos_token_id": 0}
T5 = {"d_model": 128, "d_kv": 16, "d_ff": 512, "num_layers": 6, "num_heads": 8, "decoder_start_token_id": 0}
VIT = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
RESNET50 = {"embedding_size": 16, "hidden_sizes": [64, 128, 256, 512], "depths": [3, 4, 6, 3]}


def _rectified(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    """Return a normalization, a rectifier and a convolution."""
    convolution = nn.Conv2d(inputs, outputs, kernel, 1, kernel // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), convolution]


class DenseLayer(nn.Module):
    """DenseNet's bottleneck: normalization, rectifier and convolution, of 1 x 1 and of 3 x 3; then all side by side."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_rectified(inputs, 4 * growth, 1), *_rectified(4 * growth, growth, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, inputs + growth, H, W)."""
        return torch.cat([x, self.layers(x)], 1)


def _densenet(growth: int = 8) -> nn.Module:
    width = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False)]
    layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    for stage, count in enumerate((6, 12, 24, 16)):
        if stage:
            layers += [*_rectified(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
        for _ in range(count):
            layers.append(DenseLayer(width, growth))
            width += growth
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


class Cells(nn.Module):
    """Two layers of LSTM cells with dropout between, over a text; the head is at every word."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(2))

    def forward(self, words: Tensor) -> Tensor:
        """Map (N, length) to (N, words, length)."""
        states: list[Any] = [None] * len(self.cells)
        found = []
        for x in self.words(words).unbind(1):
            for k, cell in enumerate(self.cells):
                states[k] = cell(F.dropout(x, 0.1, self.training), states[k])
                x = states[k][0]
            found.append(self.head(x))
        return torch.stack(found, 2)


_llama_2 = _llama(256, 8, 2, 512, "eager")
_t5 = _transformer("T5", "ForConditionalGeneration", vocab_size=512, use_cache=False, **T5)
_vit = _transformer("ViT", "ForImageClassification", image_size=64, patch_size=8, num_labels=CLASSES, **VIT)
_resnet50 = _transformer("ResNet", "ForImageClassification", num_labels=CLASSES, **RESNET50)
_gpt2 = _transformer("GPT2", "LMHeadModel", vocab_size=512, use_cache=False, **GPT2)
_unet = NETWORKS["unet"]
MODELS = {
    "llama": Model(_llama(192, 6, 6, 256, "sdpa"), _texts(2, 64, 256), _language, "LlamaDecoderLayer"),
    "llama_2": Model(lambda: _llama_2().bfloat16(), _texts(2, 128, 512), _language, "LlamaDecoderLayer"),
    "gpt2": Model(_gpt2, _texts(4, 128, 512), _language, "GPT2Block"),
    "t5": Model(_t5, _texts(4, 64, 512), _language, "T5Block"),
    "vit": Model(_vit, _images(8, 64), _classified, "ViTLayer"),
    "resnet50": Model(_resnet50, _images(8, 96), _classified, "ResNetBottleNeckLayer"),
    "densenet": Model(_densenet, _images(8, 64), _entropy, "DenseLayer"),
    "unet": Model(lambda: _unet.build(8), lambda: _unet.batch(96), _entropy, "Sequential"),
    "lstm": Model(lambda: Cells(512, 128), lambda: texts(32, 512)(32), _entropy, "LSTMCell"),
}


def rows_of(
    chosen: Sequence[str], folder: Path, measure: Callable[[Model, Kept], None]
) -> dict[str, list[Row]]:
    """Measure the chosen models, on one thread; return the rows kept of all models, by name."""
    torch.set_num_threads(1)
    for name in chosen or MODELS:
        measure(MODELS[name], Kept(name, folder / f"{name}.json"))
    return {name: Kept(name, folder / f"{name}.json").rows for name in MODELS}


def of_models(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options ``--model`` and ``--out``."""
    made: Callable[..., Any] = output.chosen("--model", "chosen", MODELS)(output.out(command))
    return made
