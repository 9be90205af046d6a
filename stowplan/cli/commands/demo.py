"""``stowplan demo``: train a real network with NumPy's allocator, through the pool, and lean through the pool."""

from __future__ import annotations

from pathlib import Path

import click

from ...insight.demo import MODELS
from ..terminal import console
from ._options import OutputFile
from ._reporter import Answer, reporter

_FEWEST_STEPS = 4  # a warm-up, one recorded, one that confirms, one replayed


@reporter("Train a network with and without the pool, and compare.", "demo --model resnet50 --batch 4")
@click.option("--model", type=click.Choice(MODELS), default=MODELS[0], help="The network to train.")
@click.option("--batch", type=click.IntRange(min=1), default=2, help="Images in a step.")
@click.option("--steps", type=click.IntRange(min=_FEWEST_STEPS), default=10, help="Steps in each run.")
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of images, parameters and dropout."
)
@click.option("--plot", type=OutputFile(), default="demo-plan.png", help="The plan's picture (PNG).")
@click.option("--no-plot", is_flag=True, help="Make no picture.")
def demo(model: str, batch: int, steps: int, seed: int, plot: Path, no_plot: bool) -> Answer:
    """Train a Chainer network with and without the pool, and compare memory and time.

    It trains three ways (NumPy's allocator; the pool; the pool with early release), interleaved step by step, from the
    same seed, on synthetic images. Exit status 1 if their results differ in any bit.
    """
    from ...compat import enable_chainer
    from ...insight.plots import require_matplotlib, save_placement

    enable_chainer()
    if not no_plot:
        require_matplotlib()

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
    if not no_plot:
        title = f"One training step of {model}, batch {batch}"
        save_placement(plot, result.pool.plan.problem, result.pool.plan.placement, title=title)
    picture = [] if no_plot else [f"The plan's picture: {plot}"]
    figures = {**as_json(result), "plot": None if no_plot else str(plot)}
    return Answer(figures, (*as_tables(result), *picture), bad=result.differs_in is not None)
