"""How long a new plan takes, and how long the program waits for it: ``python -m experiments.reoptimization``.

A step of some thousand blocks is replayed; then every request doubles in size. The table shows for each step the time
that the caller spends on entering and leaving it, its slowest request, and how long the planner's thread took for the
plan that followed from it.
"""

from __future__ import annotations

import time

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from stowplan import NumpyPool


def run_step(sizes: list[int], lifetimes: list[int], scale: int) -> float:
    """Allocate and free one step's blocks; return the seconds of the slowest request."""
    live: dict[int, np.ndarray] = {}
    slowest = 0.0
    for i, (size, lifetime) in enumerate(zip(sizes, lifetimes, strict=True)):
        began = time.perf_counter()
        live[i] = np.empty(size * scale, np.uint8)
        slowest = max(slowest, time.perf_counter() - began)
        live.pop(i - lifetime, None)
    return slowest


@click.command()
@click.option("--blocks", default=6000, show_default=True, type=click.IntRange(1), help="Requests of a step.")
@click.option("--seed", default=0, show_default=True, type=int)
def main(blocks: int, seed: int) -> None:
    """Double every request of a replayed step, and time the new plan."""
    rng = np.random.default_rng(seed)
    sizes = (512 * np.round(2 ** rng.uniform(2, 9, blocks))).astype(int).tolist()
    lifetimes = rng.integers(1, 100, blocks).tolist()
    pool = NumpyPool()
    table = Table(title=f"{blocks:,} requests a step; milliseconds")
    for heading in (
        "step",
        "sizes",
        "enter",
        "leave",
        "slowest request",
        "plan made in",
        "served from the plan",
    ):
        table.add_column(heading, justify="right")
    with pool:
        for i in range(10):
            scale = 1 if i < 5 else 2
            before = pool.stats
            began = time.perf_counter()
            step = pool.step()
            step.__enter__()
            entered = time.perf_counter()
            slowest = run_step(sizes, lifetimes, scale)
            ran = time.perf_counter()
            step.__exit__(None, None, None)
            left = time.perf_counter()
            pool.wait()
            planned = time.perf_counter()
            share = (pool.stats.replayed - before.replayed) / blocks
            times = (entered - began, left - ran, slowest, planned - left)
            table.add_row(str(i), f"x {scale}", *(f"{1e3 * t:.3f}" for t in times), f"{share:.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()
