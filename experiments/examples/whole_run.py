"""Chainer's examples from their first step on: ``python -m experiments.examples.whole_run``, plain and with stowplan.

Each example is trained in a process of its own in each of four ways: *plain*, as Chainer does; *pool*, marked steps
through a `NumpyPool`; *lean*, under a `Scheduler` without a budget; *budget*, under one with the budget of
`networks.EXAMPLES`.

The table has what a user sees: the largest resident set of the whole process, its first steps, its planning and
stowplan's own modules included, and the CPU time of a step after the first `SETTLED` seconds. BLAS has one thread.
Processes take turns, round by round; the smallest resident set and the median time count.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track

from ..measures import output
from ..measures.apart import ONE_THREAD, ask
from ..measures.output import Column, mib
from ..measures.usage import of_this_process

NOTE = (
    "Each training is a process of its own, from the first import to the last step; CPU times are those of steps after "
    "the first five seconds, medians of ratios of runs of the same round."
)
WAYS = ("plain", "pool", "lean", "budget")
PLACE = "experiments.examples.whole_run:train"
SETTLED = 5.0
"""Seconds of a run after which the time of steps counts."""


def train(name: str, way: str, steps: int | None = None) -> dict[str, Any]:
    """Train in this process, as many steps as the example has, or fewer; return its figures."""
    from .networks import EXAMPLES

    np.random.seed(0)  # noqa: NPY002 (Chainer draws its parameters from it)
    example = EXAMPLES[name]
    training = example.make()
    serving, step = _through(way, training.optimizers, example.budget)
    cpu = []
    with serving:
        began = time.perf_counter()
        for i in range(steps or example.steps):
            at = time.process_time()
            with step():
                training.step(i)
            if time.perf_counter() - began > SETTLED:
                cpu.append(time.process_time() - at)
    bits = hashlib.sha256()
    for optimizer in training.optimizers:
        for parameter in optimizer.target.params():
            bits.update(np.ascontiguousarray(parameter.array))
    return {
        "rss": of_this_process("VmHWM"),
        "cpu": float(np.median(cpu)) if cpu else None,
        "bits": bits.hexdigest(),
    }


def _through(
    way: str, optimizers: list[Any], budget: str | None
) -> tuple[AbstractContextManager[Any], Callable[[], AbstractContextManager[Any]]]:
    """Return what serves the whole training, and what makes the context of each step."""
    if way == "plain":
        return nullcontext(), nullcontext
    from stowplan import NumpyPool

    pool = NumpyPool()
    if way == "pool":
        return pool, pool.step
    from stowplan.chainer import Scheduler

    scheduler = Scheduler(optimizers, pool, None if way == "lean" else budget)
    return pool, scheduler.step


@click.command()
@click.option("--example", "examples", multiple=True, help="Only this one; repeatable.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@output.out
def main(examples: tuple[str, ...], rounds: int, out: Path) -> None:
    """Show what Chainer's examples take as a whole, plain and through stowplan."""
    from .networks import EXAMPLES

    ways = {name: WAYS if EXAMPLES[name].budget else WAYS[:-1] for name in examples or EXAMPLES}
    cells = [(name, way) for _ in range(rounds) for name in ways for way in ways[name]]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, way in track(cells, "training", console=Console(stderr=True)):
        taken = ask(PLACE, {"name": name, "way": way}, ONE_THREAD)
        found.setdefault((name, way), []).append(taken)
    rows = []
    for name in ways:
        plain = found[name, "plain"]
        for way in ways[name]:
            runs = found[name, way]
            rss = [min(run["rss"] for run in each) for each in (runs, plain)]
            ratio = float(np.median([a["cpu"] / b["cpu"] for a, b in zip(runs, plain, strict=True)]))
            same = {run["bits"] for run in (*runs, *plain)}
            about = {"device": "cpu", "example": name, "way": way}
            found_of = {"rss": rss[0], "more": rss[0] - rss[1], "cpu": ratio, "bits": len(same) == 1}
            rows.append(about | found_of)
    columns = [
        Column("example", "example"),
        Column("way", "way"),
        Column("largest resident set, MiB", "rss", mib),
        Column("beside plain's, MiB", "more", mib),
        Column("CPU of a step, of plain's", "cpu", "{:.3f}".format),
        Column("parameters equal", "bits", lambda same: "yes" if same else "NO"),
    ]
    title = "Chainer's examples from their first step on"
    output.write_table(rows, columns, out / "whole_run", title, NOTE)
    output.show(out / "whole_run")


if __name__ == "__main__":
    main()
