"""Train models within budgets on a GPU, beside PyTorch's own ways: ``python -m experiments.torch.gpu``.

A transformer, a GPT-2, a ResNet and a ViT, each by itself, by `stowplan.torch.schedule` within half of its peak, also
with `stowplan.TorchPool` (in a process of its own, as PyTorch takes an allocator once), and within the least that is
found; by `compile_backend` within half; by ``torch.compile`` under ``activation_memory_budget``; and with
``torch.utils.checkpoint`` around each block.

Peaks are the allocator's (``torch.cuda.max_memory_allocated``) beside what is resident, and times those of whole steps.
Without a GPU the sizes are small, and the same is measured of the host by `stowplan.torch.Meter`: a dry run. Each row
is in a file as soon as it is measured; the same command goes on from there, and begins no model after ``--limit``
seconds.

Exit status 1 if a scheduled parameter differs from the plain run's, or a peak is above what was said by `CLOSE`.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

import stowplan
from stowplan.torch import compile_backend

from ..measures import output
from ..measures.apart import CannotRunError, ask
from ..measures.kept import Row
from .kept import Kept
from .networks import WORDS, Gpt, resnet18
from .training import Model, Original, Step, peak_of, plain_step, seconds_of, trained

CLOSE = 0.02
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SETTING = 0.5
"""Of ``activation_memory_budget``."""
BITWISE = ("half", "half, TorchPool", "least", "compile_backend")
"""Ways whose bits are the plain step's."""

TITLE = "Models of PyTorch trained within budgets on a GPU"
NOTE = (
    "Peaks are MiB beside what is resident (parameters, momentum, the batch), as said beforehand and as PyTorch's "
    "allocator has it; times are over the plain step's. *half*, *least*: `stowplan.torch.schedule`; *inductor*: "
    f"`torch.compile` with `activation_memory_budget` {SETTING}; *checkpoint*: `torch.utils.checkpoint` around blocks."
)
COLUMNS = [
    output.Column("model", "model"),
    output.Column("way", "way"),
    output.Column("said", "said", output.mib),
    output.Column("peak", "peak", output.mib),
    output.Column("of plain", "share", "{:.3f}".format),
    output.Column("time", "seconds", "{:.2f}".format),
    output.Column("same bits", "identical"),
]


class Vit(nn.Module):
    """Transformer layers over patches of 16 x 16, and the mean's class."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, width, 16, 16), nn.Linear(width, 1000)
        self.layers = _encoder(width, layers)

    def forward(self, images: Tensor) -> Tensor:
        """Map (N, 3, H, W) to (N, 1000)."""
        return self.head(self.layers(self.patches(images).flatten(2).transpose(1, 2)).mean(1))


def _encoder(width: int, layers: int) -> nn.Module:
    one = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.1, "gelu", batch_first=True)
    return nn.TransformerEncoder(one, layers, enable_nested_tensor=False)


def _made(
    build: Callable[[], nn.Module], batch: Callable[[], tuple[Tensor, ...]], block: str, loss: Any
) -> Model:
    """Return a model on the device."""
    return Model(
        lambda: build().to(DEVICE),
        lambda: tuple(one.to(DEVICE) for one in batch()),
        lambda model, x, y: loss(model(x), y),
        block,
    )


def _images(count: int, size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, size, size), torch.randint(1000, (count,))


W, LAYERS, N, LENGTH, SIZE = (1024, 12, 16, 512, 224) if CUDA else (128, 4, 2, 64, 64)
MODELS = {
    "transformer": _made(
        lambda: _encoder(W, LAYERS),
        lambda: (torch.randn(N, LENGTH, W), torch.randn(N, LENGTH, W)),
        "TransformerEncoderLayer",
        F.mse_loss,
    ),
    "gpt2": _made(
        lambda: Gpt(W, LAYERS, LENGTH),
        lambda: (torch.randint(WORDS, (N, LENGTH)), torch.randint(WORDS, (N, LENGTH))),
        "Attention",
        F.cross_entropy,
    ),
    "resnet": _made(lambda: resnet18(W // 8), lambda: _images(8 * N, SIZE), "Residual", F.cross_entropy),
    "vit": _made(
        lambda: Vit(W, LAYERS), lambda: _images(4 * N, SIZE), "TransformerEncoderLayer", F.cross_entropy
    ),
}


def _peak(step: Step, own: nn.Module, batch: tuple[Tensor, ...]) -> int:
    own.zero_grad()
    if not CUDA:
        return peak_of(step, batch)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(*batch)
    return torch.cuda.max_memory_allocated() - before


def _clock() -> float:
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter()


def _row(original: Original, own: nn.Module, step: Step, **found: Any) -> Row:
    trained(step, original.batch)
    same = original.same(own)
    peak = _peak(step, own, original.batch)
    seconds = seconds_of(step, original.plain, original.batch, clock=_clock)
    return {"peak": peak, "seconds": seconds, "identical": "yes" if same else "no"} | found


def measure(name: str, kept: Kept) -> None:
    """Make the rows of one model that are not there yet."""
    original = Original(MODELS[name])
    loss, batch = original.loss, original.batch

    def plain() -> Row:
        own = original.copy()
        resident = original.scheduled(None)[1].plan(*batch).resident
        least = original.least() - resident
        return _row(original, own, plain_step(own, loss), resident=resident, least=least)

    def ours(budget: int) -> Row:
        own, training = original.scheduled(budget)
        stats = training.plan(*batch)
        return _row(original, own, training.step, said=stats.peak - stats.resident)

    def tagged() -> Row:
        torch._dynamo.reset()
        own, backend = original.copy(), compile_backend(resident + before // 2)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "stowplan: a graph takes")
            step = plain_step(own, torch.compile(loss, backend=backend, dynamic=False))
            row = _row(original, own, step)
        return row | {"said": max(stats.peak - stats.resident for stats in backend.stats)}

    def theirs() -> Row:
        torch._dynamo.reset()
        own = original.copy()
        with torch._functorch.config.patch(activation_memory_budget=SETTING):
            compiled = torch.compile(loss, backend="inductor" if CUDA else "aot_eager")
            return _row(original, own, plain_step(own, compiled))

    def around_blocks() -> Row:
        own = original.with_checkpoints()
        return _row(original, own, plain_step(own, loss))

    def pooled() -> Row:
        asked = {"name": name, "budget": half}
        try:
            return ask("experiments.torch.gpu:with_pool", asked, seconds=150)
        except CannotRunError as error:
            return {"note": f"{error}"}

    first = kept.add("plain", None, plain)
    resident, before = first["resident"], first["peak"]
    half = resident + max(before // 2, first["least"])
    kept.add("half", None, lambda: ours(half))
    kept.add("half, TorchPool", None, pooled)
    kept.add("least", None, lambda: ours(resident + first["least"]))
    kept.add("compile_backend", None, tagged)
    kept.add("inductor" if CUDA else "aot_eager", SETTING, theirs)
    kept.add("checkpoint", None, around_blocks)


def with_pool(name: str, budget: int) -> Row:
    """Train within a budget under a pool, without figures of the allocator's: return the time, and whether equal."""
    pool = stowplan.TorchPool(device=DEVICE) if CUDA else stowplan.TorchPool()
    if CUDA:
        pool.install()
    original = Original(MODELS[name])
    own, training = original.scheduled(budget, pool=pool)
    trained(training.step, original.batch)
    row = {"identical": "yes" if original.same(own) else "no"}
    return row | {"seconds": seconds_of(training.step, original.plain, original.batch, clock=_clock)}


def wrong(row: Row) -> list[str]:
    """Return what is wrong with a row of stowplan's."""
    found = [f"{row['note']}"] if "note" in row else []
    if row["way"] in BITWISE and row.get("identical") == "no":
        found.append("parameters differ")
    if row["way"] in ("half", "least") and row["peak"] > (1 + CLOSE) * row["said"]:
        found.append(f"peak {row['peak']} was said to be {row['said']}")
    return found


@click.command()
@output.chosen("--model", "chosen", MODELS)
@click.option(
    "--limit", default=600.0, show_default=True, help="Seconds after which no further model begins."
)
@output.out
def main(chosen: tuple[str, ...], limit: float, out: Path) -> None:
    """Train models of PyTorch within budgets on a GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for equal bits in every run
    torch.use_deterministic_algorithms(True, warn_only=True)
    until, lines = time.monotonic() + limit, []
    for name in chosen or MODELS:
        if time.monotonic() > until:
            click.echo(f"{name}: not begun within the limit; the same command goes on here", err=True)
            break
        kept = Kept(name, out / "torch_gpu" / f"{DEVICE}-{name}.json")
        measure(name, kept)
        plain = kept.rows[0]["peak"]
        for row in kept.rows:
            share = {"share": row["peak"] / plain} if "peak" in row else {}
            lines.append({"device": DEVICE, "model": name} | row | share)
        output.write_table(lines, COLUMNS, out / "torch_gpu", TITLE, NOTE, ("torch",))
    output.fail(f"{row['model']}, {row['way']}: {what}" for row in lines for what in wrong(row))


if __name__ == "__main__":
    main()
