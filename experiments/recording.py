"""What recording costs: ``python -m experiments.recording``.

Each program's step runs by itself, under a `NumpyRecorder`, and under one that notes call sites (with Chainer's links
and functions), in turns. The table shows the median time of a step by itself, and the medians of the ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from stowplan import NumpyRecorder
from stowplan.compat import enable_chainer

from .models import MODELS

SMALL = 1033
"""Bytes; as ``stowplan profile``."""

Step = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """The time of a program's step in seconds, and how many times as long it takes when recorded.

    Attributes
    ----------
    plain
        Seconds by itself.
    recorded, with_sites
        Ratios to that: recorded, and recorded with call sites.
    for_sites
        Ratio of the two.
    """

    name: str
    plain: float
    recorded: float
    with_sites: float
    for_sites: float


def arrays(side: int) -> Step:
    """Return a step of operations on small arrays and nothing else: the worst case."""
    a = np.ones((side, side))

    def step() -> None:
        b = a
        for _ in range(100):
            b = a + b * 0.5

    return step


def perceptron(units: int = 100, batch: int = 50) -> Step:
    """Return a training step of Chainer's MNIST example."""
    enable_chainer()
    import chainer
    from chainer import functions, links

    layers = links.Linear(784, units), functions.relu, links.Linear(units, units), functions.relu
    model = links.Classifier(chainer.Sequential(*layers, links.Linear(units, 10)))
    optimizer = chainer.optimizers.Adam().setup(model)
    images, labels = np.ones((batch, 784), "f"), np.zeros(batch, "i")
    return lambda: optimizer.update(model, images, labels)


def googlenet(batch: int = 2) -> Step:
    """Return a training step of GoogLeNet."""
    enable_chainer()
    import chainer

    model = MODELS["googlenet"].network()
    optimizer = chainer.optimizers.MomentumSGD(lr=0.001).setup(model)
    images, labels = np.ones((batch, 3, 224, 224), "f"), np.zeros(batch, "i")
    return lambda: optimizer.update(model, images, labels)


PROGRAMS: dict[str, tuple[Callable[[], Step], int]] = {
    "arrays of 20 x 20": (lambda: arrays(20), 100),
    "arrays of 100 x 100": (lambda: arrays(100), 40),
    "arrays of 300 x 300": (lambda: arrays(300), 4),
    "Chainer, perceptron": (perceptron, 60),
    "Chainer, GoogLeNet": (googlenet, 1),
}
"""By title: a function that makes the step, and how many steps are timed together."""


def measure(name: str, rounds: int = 15) -> Row:
    """Time a program's step, by itself and recorded."""
    make, steps = PROGRAMS[name]
    step = make()
    ways: list[Callable[[], AbstractContextManager[Any]]] = [
        nullcontext,
        lambda: NumpyRecorder(auto_step=True, small=SMALL),
        lambda: NumpyRecorder(auto_step=True, small=SMALL, sites=True),
    ]
    turns = []
    for _ in range(rounds):
        seconds = []
        for watch in ways:
            with watch():
                step()
                began = time.perf_counter()
                for _ in range(steps):
                    step()
                seconds.append((time.perf_counter() - began) / steps)
        plain, recorded, with_sites = seconds
        turns.append((plain, recorded / plain, with_sites / plain, with_sites / recorded))
    return Row(name, *map(median, zip(*turns, strict=True)))


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=15, show_default=True)
def main(rounds: int) -> None:
    """Measure, and show the table."""
    console = Console()
    table = Table(title="What recording costs")
    table.add_column("program", no_wrap=True)
    for column in ("ms a step", "recorded", "with sites", "for the sites"):
        table.add_column(column, justify="right")
    for name in track(PROGRAMS, "measuring", console=Console(stderr=True)):
        row = measure(name, rounds)
        ratios = row.recorded, row.with_sites, row.for_sites
        table.add_row(name, f"{row.plain * 1e3:.2f}", *(f"{ratio:.2f}" for ratio in ratios))
    console.print(table)


if __name__ == "__main__":
    main()
