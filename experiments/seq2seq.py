"""A sequence-to-sequence network with sentences of any length: ``python -m experiments.seq2seq``.

Each batch has other lengths, so no two steps ask for the same blocks. Both runs train the same network on the same
batches with the same seed: with NumPy's allocator and through the pool. Shown: what was reserved at the most over what
was alive at the most, how requests were served in the second half of the steps, time per step, and whether the losses
are bit-identical.
"""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from stowplan import NumpyPool
from stowplan.compat import enable_chainer

SMALL = 512
"""Bytes; smaller requests are not planned. With the default, what is planned of an iteration depends on its size."""


def train(
    steps: int, batch: int, seed: int, pool: NumpyPool | None, marked: bool = True
) -> tuple[list[float], list[float], list[Any]]:
    """Train for some steps, `marked` or not; return losses, seconds per step and the pool's counts after each step."""
    import chainer

    from experiments.data import synthetic_pairs
    from experiments.models.seq2seq import Seq2seq

    np.random.seed(seed)  # noqa: NPY002 (Chainer draws its parameters from it)
    rng = np.random.default_rng(seed)
    model = Seq2seq()
    optimizer = chainer.optimizers.Adam().setup(model)
    batches = [[list(side) for side in zip(*synthetic_pairs(rng, batch), strict=True)] for _ in range(steps)]

    def step(source: Any, target: Any) -> float:
        loss = model(source, target)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        return float(loss.array)

    losses, seconds, counts = [], [], []
    name = "with NumPy's allocator" if pool is None else "through the pool"
    with pool or nullcontext():
        for source, target in track(batches, name, console=Console(stderr=True)):
            began = time.perf_counter()
            with pool.step() if pool is not None and marked else nullcontext():
                losses.append(step(source, target))
            seconds.append(time.perf_counter() - began)
            counts.append(pool.stats if pool is not None else None)
    return losses, seconds, counts


@click.command()
@click.option("--steps", default=100, show_default=True, type=click.IntRange(4))
@click.option("--batch", default=32, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=int)
@click.option("--auto-step", is_flag=True, help="Mark no steps: the pool finds them.")
def main(steps: int, batch: int, seed: int, auto_step: bool) -> None:
    """Train with sentences of 3 to 50 words, and show what the pool made of it."""
    enable_chainer()
    pool = NumpyPool(small=SMALL, auto_step=auto_step)
    losses, seconds, _ = train(steps, batch, seed, None)
    pooled_losses, pooled_seconds, counts = train(steps, batch, seed, pool, marked=not auto_step)
    half, last = counts[steps // 2 - 1], counts[-1]
    served = {name: getattr(last, name) - getattr(half, name) for name in ("replayed", "guests", "upstream")}
    total = sum(served.values())
    table = Table(title=f"seq2seq, batch {batch}, {steps} steps", show_header=False)
    table.add_column(), table.add_column(justify="right")
    table.add_row("most alive at once", f"{last.peak_live_bytes:,} bytes")
    table.add_row("most reserved (arena and upstream)", f"{last.peak_reserved_bytes:,} bytes")
    table.add_row("reserved / alive", f"{last.peak_reserved_bytes / last.peak_live_bytes:.3f}")
    table.add_row("second half: served at planned addresses", f"{served['replayed'] / total:.1%}")
    table.add_row("second half: served as guests of the arena", f"{served['guests'] / total:.1%}")
    table.add_row("second half: served by upstream", f"{served['upstream'] / total:.1%}")
    table.add_row("plans made", str(last.plans))
    table.add_row(
        "time per step, pool / NumPy's allocator (medians)",
        f"{statistics.median(pooled_seconds) / statistics.median(seconds):.2f}",
    )
    table.add_row("losses bit-identical", "yes" if losses == pooled_losses else "NO")
    Console().print(table)


if __name__ == "__main__":
    main()
