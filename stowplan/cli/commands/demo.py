"""``stowplan demo``: train a real network with NumPy's allocator, through the pool, and lean through the pool."""

from __future__ import annotations

import click

from ...insight.demo import MODELS
from ..terminal import console
from ._options import removed_option
from ._reporter import Answer, reporter

_FEWEST_STEPS = 4  # a warm-up, one recorded, one that confirms, one replayed


@reporter("Train a network with and without the pool, and compare.", "demo --model resnet50 --batch 4")
@click.option("--model", type=click.Choice(MODELS), default=MODELS[0], help="The network to train.")
@click.option("--batch", type=click.IntRange(min=1), default=2, help="Images in a step.")
@click.option("--steps", type=click.IntRange(min=_FEWEST_STEPS), default=10, help="Steps in each run.")
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of images, parameters and dropout."
)
@removed_option("--plot", "stowplan profile -o FILE SCRIPT, and stowplan report FILE, which draws it")
@removed_option("--no-plot", "no such option: it draws nothing")
def demo(model: str, batch: int, steps: int, seed: int) -> Answer:
    """Train a Chainer network with and without the pool, and compare memory and time.

    It trains three ways (NumPy's allocator; the pool; the pool with early release), interleaved step by step, from the
    same seed, on synthetic images. Exit status 1 if their results differ in any bit.
    """
    from ...compat import enable_chainer

    enable_chainer()

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from ...insight.demo.compare import compare
    from ...insight.demo.training import Task
    from ._demo_tables import as_json, as_tables

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True)) as progress:
        rounds = progress.add_task("rounds: NumPy, stowplan, lean", total=steps)
        result = compare(
            Task(model, batch, steps, seed), lambda done: progress.update(rounds, completed=done)
        )
    return Answer(as_json(result), as_tables(result), bad=result.differs_in is not None)
