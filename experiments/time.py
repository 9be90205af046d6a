"""Figure 3 of Sekiyama et al. 2018: time of a step, ``python -m experiments.time``.

For each network, training and inference, and each batch size: seconds of a step through stowplan's pool over those of
the same step without it. On the host the others are NumPy's default handler, over the C library's malloc, over the same
with three variables set, and over jemalloc, mimalloc and tcmalloc where these are installed (`measures.peers`); on a
GPU CuPy's own pool, its asynchronous one and its pool over managed memory.

For each of the others a process trains one network, whose steps run through the pool and without it, in turns that
are shorter than a step (`measures.paired_timing`): other programs on the machine slow both down alike, and both find
the same parameters at the same addresses. The table shows the median over all rounds of pool / other in the same
round, its standard error and the quartiles. Rounds go on until it is clear which is faster, or that neither is, or
until the limit is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click
import numpy as np

from .measures import output, peers
from .measures.apart import ONE_HEAP, ask
from .measures.medians import standard_error
from .measures.paired_timing import OURS, Task, Turn, ratios
from .measures.recordings import affordable, expected, overflows
from .measures.runner import CELL, NO_TIMES, SIMULATED, CannotRunError, Cell, Row, Runner, command, title_of

HOST = (peers.PLAIN, *peers.LIBRARIES, peers.TUNED_GLIBC)
GPU = ("CuPy", "CuPy async", "CuPy managed")
SMALLEST = 2
"""A batch size that every machine should have time for, run in addition to the paper's."""
MOST_ROUNDS, QUICK_ROUNDS = 500, 5
TURN = 0.3
"""Seconds."""


def measure(runner: Runner, cell: Cell) -> Row:
    """Find a cell's row; times in seconds.

    Raises
    ------
    CannotRunError
        The steps take longer than the limit, or more memory than there is.
    """
    if title_of(cell.device) == SIMULATED:
        raise CannotRunError(NO_TIMES)
    if overflows(cell):
        raise CannotRunError("left out: Chainer's convolution indexes with 32 bits, which are too few")
    others = others_of(cell.device)
    seconds, need = expected(runner, cell)

    def task(other: str) -> Task:
        # A turn of a short step is several steps: it should last longer than a time slice of the system.
        repeat = max(1, round(TURN / seconds))
        rounds = QUICK_ROUNDS if runner.quick else MOST_ROUNDS
        share = runner.limit / len(others)
        about = (cell.device, cell.model.name, cell.phase, cell.batch, other, runner.data.seed)
        return Task(*about, repeat, rounds, share)

    steps = sum(task(other).least_steps for other in others)
    # Both are in the middle of a step at once.
    if not affordable(runner, cell, steps, 0.4):
        raise CannotRunError(
            f"left out: {steps} steps of about {seconds:.1f} s, twice {need / 2**30:.1f} GiB"
        )
    row: Row = {}
    for other, added in others.items():
        turns: list[Turn] = ask(
            "experiments.measures.paired_timing:perform", asdict(task(other)), ONE_HEAP | added
        )
        row[f"rounds_{other}"] = len(turns)
        row[f"seconds_{other}"] = float(np.median([turn[other] for turn in turns]))
        row[f"seconds_{OURS}_{other}"] = float(np.median([turn[OURS] for turn in turns]))
        found = ratios(turns, OURS, other)
        row[f"ratio_{other}"] = np.quantile(found, (0.25, 0.5, 0.75)).tolist()
        row[f"error_{other}"] = standard_error(found)
    return row


def others_of(device: str) -> dict[str, dict[str, str]]:
    """Return the allocators that the pool is compared with, and what each adds to the environment, if anything."""
    return {name: {} for name in GPU} if device == "gpu" else {peers.PLAIN: {}, **peers.available()}


def columns(rows: Sequence[Row]) -> list[output.Column]:
    """Columns of the Markdown table."""
    names = [name for name in (*HOST, *GPU) if any(f"seconds_{name}" in row for row in rows)]
    return [*CELL, *(one for name in names for one in _columns(name)), output.Column("", "note")]


def _columns(name: str) -> tuple[output.Column, ...]:
    return (
        output.Column(f"{name}: s", f"seconds_{name}", output.seconds),
        output.Column("stowplan: s", f"seconds_{OURS}_{name}", output.seconds),
        output.Column(f"stowplan / {name}", f"ratio_{name}", _spread),
        output.Column("standard error", f"error_{name}", "{:.3f}".format),
        output.Column("rounds", f"rounds_{name}"),
    )


def _spread(quartiles: Sequence[float]) -> str:
    low, middle, high = quartiles
    return f"{middle:.3f} ({low:.2f} to {high:.2f})"


@command(limit=400, quick_limit=30)
def main(runner: Runner) -> None:
    """Compare the time of one step through the pool with that through others (Figure 3)."""
    for line in peers.missing():
        click.echo(line, err=True)
    others = sorted(peers.available())
    rows = runner.run("time", lambda cell: measure(runner, cell), SMALLEST, others=others)
    note = "Medians; the ratios are those of turns in the same round, with their quartiles."
    output.write_table(rows, columns(rows), runner.out / "time", "Time of one step", note)


if __name__ == "__main__":
    main()
