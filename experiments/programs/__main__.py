"""Run the programs under all contestants: ``python -m experiments.programs``.

Programs that know nothing of stowplan (`catalogue`), each by plain Python, by ``stowplan run``, and by Python over
jemalloc, mimalloc, tcmalloc and a tuned C library (`measures.peers`): CPU time, page faults and resident set over plain
Python's, and whether all of them printed the same. What is not installed is named, and left out.

The files are ``programs.csv`` and ``.md``; with ``--long``, ``programs_long.*``; with ``--torch``, trainings of PyTorch
through `stowplan.TorchPool`, ``torch.*``: ``make torch-test`` makes the environment for these. A program that has been
measured is not run again by the same command: delete ``programs/cells`` in the folder for that. The machine should have
nothing else to do.

Exit status 1 if a program printed something else, or failed.
"""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from ..measures import contest
from ..measures.kept import Row
from . import measure, table
from .catalogue import NETWORKS, PROGRAMS, Program

ROUNDS, QUICK_ROUNDS = 9, 2
PACKAGES = ("scipy", "scikit-learn", "pandas", "autograd", "PyWavelets", "joblib")


def row_of(program: Program, rounds: int, length: str, seed: int, out: Path) -> Row:
    """Return a program's row, kept in a file; a note if it cannot be run."""
    about = {"device": "cpu", "program": program.name, "title": program.title}
    missing = program.missing()
    if missing is not None:
        return about | {"note": missing}
    study = {
        "rounds": rounds,
        "length": length,
        "seed": seed,
        "contestants": sorted(contest.contestants(measure.PLAIN)),
    }
    path = (
        out
        / "programs"
        / "cells"
        / ("long" if length == "long" else "")
        / f"{program.name.replace(':', '_')}.json"
    )
    return contest.measured(about, path, study, lambda: measure.measure(program, rounds, length, seed))


@click.command()
@contest.options("Small sizes and two rounds: a minute or two, and ratios of no use.", ROUNDS, QUICK_ROUNDS)
@click.option("--long", is_flag=True, help="Programs of some twenty seconds instead of two.")
@click.option("--torch", is_flag=True, help="Trainings of PyTorch.")
@click.option(
    "--program",
    "names",
    multiple=True,
    type=click.Choice([program.name for program in (*PROGRAMS, *NETWORKS)]),
    help="Only this one; repeatable.",
)
def main(
    quick: bool, long: bool, torch: bool, rounds: int, names: tuple[str, ...], seed: int, out: Path
) -> None:
    """Run programs that know nothing of stowplan under several allocators."""
    if quick and long:
        raise click.UsageError("--quick and --long: expected one of them at most")
    length = "quick" if quick else "long" if long else "short"
    chosen = [program for program in (NETWORKS if torch else PROGRAMS) if not names or program.name in names]
    progress = track(chosen, "programs", console=Console(stderr=True))
    rows = [row_of(program, rounds, length, seed, out) for program in progress]
    path = out / (("torch" if torch else "programs") + ("_long" if long else ""))
    packages = ("torch",) if torch else PACKAGES
    for row in rows:
        if "note" in row:
            click.echo(f"{row['program']}: {row['note']}")
    contest.finish(rows, table.columns(rows), path, "Programs under several allocators", table.NOTE, packages)


if __name__ == "__main__":
    main()
