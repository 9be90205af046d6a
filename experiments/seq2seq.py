"""A sequence-to-sequence network with sentences of any length: ``python -m experiments.seq2seq``.

Each batch has other lengths, so no two steps ask for the same blocks. Two networks with the same seed are trained on
the same batches: one with NumPy's allocator and one through the pool, in turns of `TURN` steps, so that other programs
on the machine slow both down alike. The table shows the most bytes reserved over the most bytes alive, how requests
were served in the second half of the steps, time per step, and whether the losses are bit-identical.

During the pool's turn its planner may be at work; the other turn begins when the planner is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from stowplan import NumpyPool
from stowplan.compat import enable_chainer

SMALL = 512
"""Bytes; smaller requests are not planned. With `NumpyPool`'s default, which requests are planned depends on the batch:
until the pool has seen that steps differ, or always if it finds the steps itself."""


TURN = 5
"""Steps."""


class Training:
    """A network in training, from a seed."""

    def __init__(self, batch: int, seed: int) -> None:
        import chainer

        from experiments.models.seq2seq import Seq2seq

        np.random.seed(seed)  # noqa: NPY002 (Chainer draws its parameters from it)
        self._rng = np.random.default_rng(seed)
        self._batch = batch
        self._network = Seq2seq()
        self._optimizer = chainer.optimizers.Adam().setup(self._network)
        self._drawn = np.random.get_state()  # noqa: NPY002 (and its dropout)
        self.losses: list[float] = []

    def run(self, step: Callable[[], AbstractContextManager[object]]) -> list[float]:
        """Train for a turn, each step inside a context of `step()`; return the seconds of each."""
        np.random.set_state(self._drawn)  # noqa: NPY002
        seconds = []
        for _ in range(TURN):
            source, target = self._next_batch()
            began = time.perf_counter()
            with step():
                self._step(source, target)
            seconds.append(time.perf_counter() - began)
        self._drawn = np.random.get_state()  # noqa: NPY002
        return seconds

    def _next_batch(self) -> tuple[Any, Any]:
        from experiments.measures.data import synthetic_pairs

        source, target = zip(*synthetic_pairs(self._rng, self._batch), strict=True)
        return list(source), list(target)

    def _step(self, source: Any, target: Any) -> None:
        loss = self._network(source, target)
        self._network.cleargrads()
        loss.backward()
        self._optimizer.update()
        self.losses.append(float(loss.array))


@click.command()
@click.option("--steps", default=100, show_default=True, type=click.IntRange(4))
@click.option("--batch", default=32, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=int)
@click.option("--auto-step", is_flag=True, help="Mark no steps: the pool finds them.")
def main(steps: int, batch: int, seed: int, auto_step: bool) -> None:
    """Train with sentences of 3 to 50 words, and show how the pool served it."""
    enable_chainer()
    pool = NumpyPool(small=SMALL, auto_step=auto_step)
    plain, pooled = Training(batch, seed), Training(batch, seed)
    counts, ratios = [], []
    for _ in track(range(-(-steps // TURN)), "training", console=Console(stderr=True)):
        seconds = plain.run(nullcontext)
        with pool:
            pooled_seconds = pooled.run(nullcontext if auto_step else pool.step)
        pool.wait()
        counts.append(pool.stats)
        ratios += [ours / theirs for ours, theirs in zip(pooled_seconds, seconds, strict=True)]
    half, last = counts[len(counts) // 2 - 1], counts[-1]
    served = {name: getattr(last, name) - getattr(half, name) for name in ("replayed", "guests", "upstream")}
    total = last.requests - half.requests
    table = Table(title=f"seq2seq, batch {batch}, {steps} steps", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("most alive at once", f"{last.peak_live_bytes:,} bytes")
    table.add_row("most reserved (arena and upstream)", f"{last.peak_reserved_bytes:,} bytes")
    table.add_row("reserved / alive", f"{last.peak_reserved_bytes / last.peak_live_bytes:.3f}")
    table.add_row("second half: served at planned addresses", f"{served['replayed'] / total:.1%}")
    table.add_row("second half: served as guests of the arena", f"{served['guests'] / total:.1%}")
    table.add_row("second half: served by upstream", f"{served['upstream'] / total:.1%}")
    table.add_row("plans made", str(last.plans))
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    table.add_row(
        "time per step, pool / NumPy's allocator (median, quartiles)",
        f"{middle:.2f} ({low:.2f} to {high:.2f})",
    )
    table.add_row("losses bit-identical", "yes" if plain.losses == pooled.losses else "NO")
    Console().print(table)


if __name__ == "__main__":
    main()
