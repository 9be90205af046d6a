"""Swap beside recomputation: ``python -m experiments.torch.swap``, models of PyTorch within the same budgets.

Each model is trained by `stowplan.torch.schedule` at 80 % of the plain step's peak and at the least peak that is found
without swap, there with and without it; and at the least peak with it. A share is of all bytes, with the resident ones.

Seconds are by the wall clock, as a step waits for the file; the least of several, in turn with the plain step. They
depend on the disk that ``/var/tmp`` is on. Exit status 1 if a parameter differs from the plain run's, or a peak is
above its budget.
"""

from __future__ import annotations

import copy
import sys
import time
from pathlib import Path
from typing import Any

import click
import torch

from stowplan.errors import BudgetError
from stowplan.torch import ScheduledTraining, schedule

from ..measures import output
from .budget import Row, Step, optimizer_of, peak_of, plain_step, trained
from .models import MODELS, Model

SHARE = 0.8
TITLE = "Models of PyTorch that swap to a file"
NOTE = (
    "Peaks are shares of the plain step's, beside what is resident; times are wall-clock times over the plain step's. "
    "*swapped*: MiB that a step writes and reads. *right*: parameters equal to the bit after three steps, the peak "
    "within the budget."
)
COLUMNS = [
    output.Column("model", "model"),
    output.Column("budget", "budget"),
    output.Column("swap", "swap"),
    output.Column("peak", "peak", "{:.3f}".format),
    output.Column("time", "seconds", "{:.2f}".format),
    output.Column("swapped", "swapped", output.mib),
    output.Column("recomputed", "recomputed"),
    output.Column("right", "right"),
]


def seconds_of(step: Step, plain: Step, batch: tuple[Any, ...], turns: int) -> float:
    """Return the time of a step over that of the plain one; each the least of several, in turns."""
    least = [float("inf")] * 2
    for _ in range(turns):
        for k, one in enumerate((step, plain)):
            began = time.perf_counter()
            one(*batch)
            least[k] = min(least[k], time.perf_counter() - began)
    return least[0] / least[1]


def rows(name: str, model: Model, turns: int) -> list[Row]:
    """Measure one model."""
    torch.manual_seed(0)
    original, batch = model.build().train(), model.batch()
    twin = copy.deepcopy(original)
    plain = plain_step(twin, model.loss)
    trained(plain, batch)
    expected = copy.deepcopy(twin.state_dict())
    before = peak_of(plain, batch)

    def made(budget: int | str | None, swap: bool) -> tuple[torch.nn.Module, ScheduledTraining]:
        own = copy.deepcopy(original)
        return own, schedule(own, optimizer_of(own), model.loss, budget=budget, swap=swap)

    def least(swap: bool) -> int:
        try:
            return made(0, swap)[1].plan(*batch).peak
        except BudgetError as error:
            return error.least

    def row(budget: int, said: str, swap: bool) -> Row:
        own, training = made(budget, swap)
        stats = training.plan(*batch)
        trained(training.step, batch)
        same = all(torch.equal(one, expected[key]) for key, one in own.state_dict().items())
        peak = peak_of(training.step, batch)
        right = same and peak + stats.resident <= budget
        return {
            "device": "cpu",
            "model": name,
            "budget": said,
            "swap": "yes" if swap else "no",
            "peak": peak / before,
            "seconds": seconds_of(training.step, plain, batch, turns),
            "swapped": stats.swapped,
            "recomputed": stats.recomputed,
            "right": "yes" if right else "NO",
        }

    share = int(SHARE * made(None, False)[1].plan(*batch).plain_peak)
    floor = least(swap=False)
    found = []
    for budget, said in ((share, f"{SHARE:.0%}"), (floor, "the least without")):
        found += [row(budget, said, swap) for swap in (False, True)]
    return [*found, row(least(swap=True), "the least with", swap=True)]


@click.command()
@click.option(
    "--model", "chosen", multiple=True, type=click.Choice(list(MODELS)), help="Only this one; repeatable."
)
@click.option("--turns", default=5, show_default=True, type=click.IntRange(1), help="Timed steps of each.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/experiments"),
    help="Folder for the table.  [default: build/experiments]",
)
def main(chosen: tuple[str, ...], turns: int, out: Path) -> None:
    """Train models of PyTorch within budgets, with swap and without."""
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    table: list[Row] = []
    for name in chosen or tuple(MODELS):
        table += rows(name, MODELS[name], turns)
        output.write_table(table, COLUMNS, out / "torch_swap", TITLE, NOTE, ("torch", "transformers"))
    failed = [
        f"{row['model']} at {row['budget']}, swap {row['swap']}" for row in table if row["right"] != "yes"
    ]
    for line in failed:
        click.echo(line, err=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
