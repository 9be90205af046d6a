"""Run networks of PyTorch under all contestants: ``python -m experiments.torch``.

Each with and without `stowplan.TorchPool`, and over jemalloc, mimalloc, tcmalloc and a tuned C library
(`measures.peers`): a step's CPU time and page faults, and the resident set. What is not installed is named, and left
out. ``make torch-test`` makes an environment with PyTorch: ``.venv-torch/bin/python -m experiments.torch``.

The files are ``torch.csv`` and ``torch.md``. What has been measured is not run again by the same command: delete
``torch/cells`` in the folder for that. The machine should have nothing else to do.

Exit status 1 if results differ, or something failed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import click

from ..measures import contest, output, peers
from ..measures.contest import OURS
from ..measures.kept import Row
from . import measure
from .measure import GLIBC, Work

ROUNDS, QUICK_ROUNDS = 5, 2
TURNS, QUICK_TURNS = 5, 3
PACKAGES = ("torch",)
TITLES = {"resnet18": "ResNet-18", "unet": "U-Net", "gpt": "GPT", "lstm": "LSTM"}
NOTE = (
    "*stowplan*: `TorchPool` with marked steps. CPU time over glibc's, medians over rounds of the medians over turns; "
    "the standard error over rounds stands behind it. Faults: minor page faults of a step. RSS: the largest resident "
    "set in the measured turns. *Replayed*: of the requests of 16 KiB and more."
)


def row_of(work: Work, rounds: int, turns: int, seed: int, out: Path) -> Row:
    """Return a row, kept in a file; a note if it cannot be run."""
    about: Row = {"device": "cpu", "network": work.network, "title": TITLES[work.network]}
    about |= {"phase": work.phase, "threads": work.threads}
    if importlib.util.find_spec("torch") is None:
        return about | {"note": "left out: no torch; expected: pip install 'stowplan[torch]'"}
    study = {"rounds": rounds, "turns": turns, "quick": work.quick, "seed": seed}
    study |= {"contestants": sorted(measure.contestants())}
    path = out / "torch" / "cells" / f"{work.network}_{work.phase}_{work.threads}.json"
    return contest.measured(about, path, study, lambda: measure.measure(work, rounds, turns, seed))


def columns(rows: Sequence[Row]) -> list[output.Column]:
    """Columns of the Markdown table."""
    column = output.Column
    others = contest.others_in(rows, (OURS, peers.TUNED_GLIBC, *peers.LIBRARIES))
    return [
        column("network", "title"),
        column("phase", "phase"),
        column("threads", "threads"),
        column("rounds", "rounds"),
        column("glibc: CPU ms", f"seconds_{GLIBC}", output.milliseconds),
        *contest.cpu_columns(others),
        *(column(f"{name}: faults", f"count_{name}", "{:,.0f}".format) for name in (GLIBC, *others)),
        *(column(f"{name}: RSS MiB", f"bytes_{name}", output.mib) for name in (GLIBC, *others)),
        column("replayed", f"replayed_{OURS}", "{:.2%}".format),
        column("arena MiB", f"arena_{OURS}", output.mib),
        column("above its bound", f"fragmentation_{OURS}", output.above),
        column("same results", "identical", lambda same: "yes" if same else "NO"),
        column("", "note"),
    ]


@click.command()
@contest.options("Small networks and two rounds: minutes, and ratios of no use.", ROUNDS, QUICK_ROUNDS)
@click.option(
    "--network", "chosen", multiple=True, type=click.Choice(list(TITLES)), help="Only this one; repeatable."
)
@click.option("--phase", type=click.Choice(["training", "inference"]), default="training", show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Of an operator.")
def main(
    quick: bool, rounds: int, chosen: tuple[str, ...], phase: str, threads: int, seed: int, out: Path
) -> None:
    """Run networks of PyTorch under several allocators."""
    rows = []
    for name in chosen or TITLES:
        work = Work(name, phase, threads, quick)
        rows.append(row_of(work, rounds, QUICK_TURNS if quick else TURNS, seed, out))
        click.echo(f"{TITLES[name]}: {rows[-1].get('note', 'measured')}", err=True)
    path = out / "torch"
    title = "PyTorch on the host under several allocators"
    note = " ".join([NOTE, *(f"{line}." for line in peers.missing())])
    contest.finish(rows, columns(rows), path, title, note, PACKAGES)


if __name__ == "__main__":
    main()
