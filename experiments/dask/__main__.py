"""Run the computations on clusters of all contestants: ``python -m experiments.dask``.

Each on Dask as it is, with `stowplan.dask.PoolPlugin`, and over jemalloc, mimalloc, tcmalloc and a tuned C library
(`measures.peers`): the workers' CPU time, page faults and resident sets over plain Dask's, and whether all results are
the same. What is not installed is named, and left out.

The files are ``dask.csv`` and ``dask.md``. A computation that has been measured is not run again by the same command:
delete ``dask/cells`` in the folder for that. The machine should have nothing else to do.

Exit status 1 if a result differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ..measures import contest, output, peers
from ..measures.kept import Row
from . import measure
from .computations import COMPUTATIONS, Computation
from .measure import PLAIN

ROUNDS, QUICK_ROUNDS = 9, 2
WARMUP, QUICK_WARMUP = 12, 3
PACKAGES = ("dask", "distributed", "scipy")
NOTE = (
    "Two processes with two threads each. Medians over rounds of the ratio to plain Dask in the same round, after the "
    "warm-up; the standard error of the CPU time's ratio stands behind it. RSS: the sum of the workers' largest "
    "resident sets."
)


def row_of(computation: Computation, rounds: int, quick: bool, seed: int, out: Path) -> Row:
    """Return a computation's row, kept in a file."""
    about = {"device": "cpu", "computation": computation.name, "title": computation.title}
    warmup, size = (QUICK_WARMUP, computation.quick) if quick else (WARMUP, computation.size)
    study = {"rounds": rounds, "warmup": warmup, "size": size, "seed": seed}
    study |= {"contestants": sorted(contest.contestants(PLAIN))}
    path = out / "dask" / "cells" / f"{computation.name}.json"
    return contest.measured(
        about, path, study, lambda: measure.measure(computation, rounds, warmup, size, seed)
    )


def columns(rows: Sequence[Row]) -> list[output.Column]:
    """Columns of the Markdown table."""
    column = output.Column
    others = contest.others_in(rows)
    return [
        column("computation", "title"),
        column("rounds", "rounds"),
        column("plain: CPU s", f"seconds_{PLAIN}", output.seconds),
        *contest.cpu_columns(others),
        *(column(f"{name}: faults", f"count_{name}", "{:,.0f}".format) for name in (PLAIN, *others)),
        *(column(f"{name}: RSS MiB", f"bytes_{name}", output.mib) for name in (PLAIN, *others)),
        column("same results", "identical", lambda same: "yes" if same else "NO"),
    ]


@click.command()
@contest.options("Small sizes and two rounds: two minutes, and ratios of no use.", ROUNDS, QUICK_ROUNDS)
@output.chosen("--computation", "chosen", [computation.name for computation in COMPUTATIONS])
def main(quick: bool, rounds: int, chosen: tuple[str, ...], seed: int, out: Path) -> None:
    """Run computations of Dask under several allocators."""
    if peers.is_chosen():  # the workers would inherit it
        raise click.ClickException(f"an allocator is chosen; expected none of {', '.join(peers.CHOOSING)}")
    asked = [one for one in COMPUTATIONS if one.name in chosen or not chosen]
    rows = [row_of(computation, rounds, quick, seed, out) for computation in asked]
    path = out / "dask"
    contest.finish(rows, columns(rows), path, "Dask under several allocators", NOTE, PACKAGES)


if __name__ == "__main__":
    main()
