"""Swap beside recomputation: ``python -m experiments.torch.swap``, models of PyTorch within the same budgets.

Each model is trained by `stowplan.torch.schedule` at 80 % of the plain step's peak and at the least peak that is found
without swap, there with and without it; and at the least peak with it. A share is of all bytes, with the resident ones.

Seconds are by the wall clock, as a step waits for the file; the least of several, in turn with the plain step. They
depend on the disk that ``/var/tmp`` is on. Exit status 1 if a parameter differs from the plain run's, or a peak is
above its budget.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import torch

from ..measures import output
from ..measures.kept import Row
from .models import MODELS, of_models
from .training import Model, Original, peak_of, seconds_of, trained

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


def rows(name: str, model: Model, turns: int) -> list[Row]:
    """Measure one model."""
    original = Original(model)
    plain, batch = original.plain, original.batch
    before = peak_of(plain, batch)

    def row(budget: int, said: str, swap: bool) -> Row:
        own, training = original.scheduled(budget, swap=swap)
        stats = training.plan(*batch)
        trained(training.step, batch)
        same, peak = original.same(own), peak_of(training.step, batch)
        return {
            "device": "cpu",
            "model": name,
            "budget": said,
            "swap": "yes" if swap else "no",
            "peak": peak / before,
            "seconds": seconds_of(training.step, plain, batch, turns, time.perf_counter),
            "swapped": stats.swapped,
            "recomputed": stats.recomputed,
            "right": "yes" if same and peak + stats.resident <= budget else "NO",
        }

    share = int(SHARE * original.scheduled(None)[1].plan(*batch).plain_peak)
    found = [
        row(budget, said, swap)
        for budget, said in ((share, f"{SHARE:.0%}"), (original.least(), "the least without"))
        for swap in (False, True)
    ]
    return [*found, row(original.least(swap=True), "the least with", swap=True)]


@click.command()
@of_models
@click.option("--turns", default=5, show_default=True, type=click.IntRange(1), help="Timed steps of each.")
def main(chosen: tuple[str, ...], turns: int, out: Path) -> None:
    """Train models of PyTorch within budgets, with swap and without."""
    torch.set_num_threads(1)
    table: list[Row] = []
    for name in chosen or tuple(MODELS):
        table += rows(name, MODELS[name], turns)
        output.write_table(table, COLUMNS, out / "torch_swap", TITLE, NOTE, ("torch", "transformers"))
    output.fail(
        f"{row['model']} at {row['budget']}, swap {row['swap']}" for row in table if row["right"] != "yes"
    )


if __name__ == "__main__":
    main()
