"""Fusion-aware checkpointing (He & Yu, MLSys 2023): what is kept for backward by compiled steps, and their time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import click
import torch
from functorch.compile import default_partition
from torch import Tensor, nn
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.torch import compile_backend

from ..torch.compiled import saved
from ..torch.models import MODELS
from ..torch.networks import NETWORKS
from ..torch.training import Model
from .table import Table

TURNS = 9
"""Steps that are timed, of each way in turn; the least counts."""


class NoRecomputation(CustomPartitionerFn):  # type: ignore[misc]
    """Keep all that backward reads."""

    def __call__(self, *args: Any, num_fwd_outputs: int, **options: Any) -> Any:
        """Split as `functorch.compile.default_partition`."""
        static = options.get("static_lifetime_input_indices")
        return default_partition(*args, num_fwd_outputs=num_fwd_outputs, static_lifetime_input_indices=static)

    def uuid(self) -> str:
        """Name it in inductor's caches."""
        return type(self).__qualname__


def no_recomputation(module: Any, inputs: Sequence[Any], **_: Any) -> Any:
    """Compile with inductor's kernels; the backend of `torch.compile` that others are compared with."""
    options = {"custom_partitioner_fn": NoRecomputation()}
    return torch._inductor.compile(module, list(inputs), options=options)


WAYS: dict[str, Callable[[], Any]] = {
    "all kept": lambda: no_recomputation,
    "PyTorch's split": lambda: "inductor",
    "stowplan": lambda: compile_backend(compiler="inductor"),
    "the least": lambda: compile_backend(0, compiler="inductor"),
}


def _network(name: str, size: int | None = None) -> Model:
    network = NETWORKS[name]
    return Model(
        lambda: network.build(network.quick_width),
        lambda: network.batch(size or network.quick_size),
        lambda model, x, y: F.cross_entropy(model(x), y),
        "",
    )


OWN = {**{name: _network(name) for name in ("resnet18", "unet", "gpt")}, "lstm": _network("lstm", size=8)}
TRANSFORMERS = ("vit", "gpt2", "t5", "llama")
"""Of `MODELS`, which need the package."""
BLOCKS = 3
"""Of each stack of a transformer; inductor takes a minute for each ten."""


def _shallow(model: Model) -> Model:
    """Return the model with `BLOCKS` blocks in each stack."""

    def build() -> nn.Module:
        net = model.build()
        for stack in net.modules():
            if isinstance(stack, nn.ModuleList) and type(stack[0]).__name__ == model.block:
                del stack[BLOCKS:]
        return net

    return replace(model, build=build)


def _chain(x: Tensor) -> Tensor:
    for _ in range(5):
        x = torch.sin(torch.sigmoid(x))
    return x


def _gates(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x + torch.tanh(x) * torch.sigmoid(x) * F.softplus(x)
    return x


def _pairs(x: Tensor) -> Tensor:
    return torch.exp(-((x[:, None] - x[None, :]) ** 2)).sum(1)


PATTERNS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "ten pointwise functions, one after the other": (_chain, (1024, 1024)),
    "three gates of pointwise functions": (_gates, (1024, 1024)),
    "all pairs of 1,024 values, summed": (_pairs, (1024,)),
}
"""Functions, and the shapes of what they are applied to."""


def measure(model: Any, loss: Callable[..., Tensor], batch: Sequence[Tensor], before: list[Tensor]) -> Any:
    """Return, by way, the bytes kept and the seconds of forward and backward; `before`: tensors that do not count."""
    torch._dynamo.reset()
    kept, steps = {}, {}
    for name, backend in WAYS.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "stowplan: a graph takes")  # more than a budget of nothing
            steps[name] = _compiled(model, loss, batch, backend())
        kept[name] = saved(steps[name](), before)
    seconds = dict.fromkeys(steps, float("inf"))
    for _ in range(TURNS):
        for name, step in steps.items():
            began = time.process_time()
            step().backward()
            seconds[name] = min(seconds[name], time.process_time() - began)
    return kept, seconds


def _compiled(
    model: Any, loss: Callable[..., Tensor], batch: Sequence[Tensor], backend: Any
) -> Callable[[], Tensor]:
    step = torch.compile(loss, backend=backend, dynamic=False)
    step(model, *batch).backward()
    return lambda: step(model, *batch)


def _row(name: str, kept: dict[str, int], seconds: dict[str, float]) -> list[str]:
    first, *others = WAYS
    return [
        name,
        *(f"{kept[way] / 2**20:.3f}" for way in WAYS),
        f"{kept[first] / kept['stowplan']:.1f}",
        *(f"{seconds[way] / seconds[first]:.2f}" for way in others),
    ]


def tables(quick: bool) -> Iterator[Table]:
    """Return the bytes and times of models and of patterns."""
    torch.set_num_threads(1)
    models = {"gpt": OWN["gpt"]} if quick else {**OWN, **_transformers()}
    rows = []
    for name, model in models.items():
        torch.manual_seed(0)
        net, batch = model.build().train(), model.batch()
        before = [*net.parameters(), *net.buffers(), *batch]
        rows.append(_row(name, *measure(net, model.loss, batch, before)))
    yield Table("Models", COLUMNS, rows, NOTE)
    rows = []
    for name, (pattern, shape) in list(PATTERNS.items())[: 1 if quick else None]:
        torch.manual_seed(0)
        x = torch.randn(shape, requires_grad=True)
        rows.append(_row(name, *measure(None, lambda _, x, f=pattern: f(x).sum(), (x,), [])))
    yield Table("Patterns", COLUMNS, rows, PATTERNS_NOTE)


def _transformers() -> dict[str, Model]:
    try:
        import transformers  # noqa: F401
    except ModuleNotFoundError:
        click.echo(f"{', '.join(TRANSFORMERS)} are left out: transformers is not installed", err=True)
        return {}
    return {name: _shallow(MODELS[name]) for name in TRANSFORMERS}


_TIMES = [f"time, {way}" for way in list(WAYS)[1:]]
COLUMNS = ("model", *(f"{way}, MiB" for way in WAYS), "all kept / stowplan", *_TIMES)
NOTE = (
    "Bytes that forward keeps for backward, beside parameters, buffers and the batch, with inductor's kernels. "
    "*PyTorch's split* is the paper's minimum cut; *stowplan* has no budget, and takes it; *the least*: within "
    "the least budget, where nothing keeps more than that cut. *Time*: CPU seconds of "
    "forward and backward on one core, over those with all kept. The paper, on a GPU: 12 % more throughput in the mean "
    "and batches up to 1.75 times as large."
)
PATTERNS_NOTE = (
    "Bytes with the input. The patterns are ours, as the paper's abstract does not say which its own are: it has up to "
    "10 times better ones, with a fifth of the peak."
)
