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

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from ..measures import contest, output
from ..measures.kept import Row
from . import measure
from .catalogue import NETWORKS, PROGRAMS, Program
from .measure import PLAIN

ROUNDS, QUICK_ROUNDS = 9, 2
PACKAGES = ("scipy", "scikit-learn", "pandas", "autograd", "PyWavelets", "joblib")

NOTE = (
    "Medians over rounds of the ratio to plain Python in the same round; the standard error of the CPU time's ratio "
    "stands behind it. *Verdict*: CPU time with stowplan over that of the best of mimalloc, tcmalloc and tuned "
    "glibc. *Heap alone*, *from the plan*: shares of NumPy's (in its table, PyTorch's) requests that the pool's heap "
    "served as no step was marked, and that came from a plan, of those since the first one and of all."
)


def columns(rows: Sequence[Row]) -> list[output.Column]:
    """Columns of the Markdown table."""
    column = output.Column
    names = contest.others_in(rows)
    return [
        column("program", "title"),
        column("rounds", "rounds"),
        column("plain: CPU s", f"seconds_{PLAIN}", output.seconds),
        *contest.cpu_columns(names),
        column("best other", "best"),
        column("verdict", "verdict_with_error"),
        column("plain: RSS MiB", f"bytes_{PLAIN}", output.mib),
        *(column(f"{name}: RSS", f"rss_{name}", "{:.2f}".format) for name in names),
        *(column(f"{name}: faults", f"count_{name}", "{:,.0f}".format) for name in (PLAIN, *names)),
        column("heap alone", "heap_only", "{:.1%}".format),
        column("from the plan", "planned", "{:.1%}".format),
        column("of all", "of_all", "{:.1%}".format),
        column("same output", "identical", lambda same: "yes" if same else "NO"),
        column("", "note"),
    ]


def row_of(program: Program, rounds: int, length: str, seed: int, out: Path) -> Row:
    """Return a program's row, kept in a file; a note if it cannot be run."""
    about = {"device": "cpu", "program": program.name, "title": program.title}
    missing = program.missing()
    if missing is not None:
        return about | {"note": missing}
    study = {"rounds": rounds, "length": length, "seed": seed}
    study |= {"contestants": sorted(contest.contestants(PLAIN))}
    folder = out / "programs" / "cells" / ("long" if length == "long" else "")
    path = folder / f"{program.name.replace(':', '_')}.json"
    return contest.measured(about, path, study, lambda: measure.measure(program, rounds, length, seed))


@click.command()
@contest.options("Small sizes and two rounds: a minute or two, and ratios of no use.", ROUNDS, QUICK_ROUNDS)
@click.option("--long", is_flag=True, help="Programs of some twenty seconds instead of two.")
@click.option("--torch", is_flag=True, help="Trainings of PyTorch.")
@output.chosen("--program", "names", [program.name for program in (*PROGRAMS, *NETWORKS)])
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
    contest.finish(rows, columns(rows), path, "Programs under several allocators", NOTE, packages)


if __name__ == "__main__":
    main()
