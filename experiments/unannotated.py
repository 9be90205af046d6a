"""Three programs that do not mention stowplan, profiled and run: ``python -m experiments.unannotated``.

A Chainer training example, a solver of the wave equation and a scikit-image pipeline (`experiments/scripts`) run three
times each: by themselves, under ``stowplan profile``, and under ``stowplan run``. The table shows the step that was
found, the share of requests that the plan served once there was one, whether the program printed the same, and its
minor page faults without and with the pool. Exit status 1 if a program printed something else.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from stowplan import Profile

SCRIPTS = Path(__file__).parent / "scripts"
NAMES = ("digits", "wave_equation", "photographs")


@dataclass(frozen=True)
class Row:
    """The results of one program.

    Attributes
    ----------
    blocks, sites
        Number of blocks in the step found, and of their call sites.
    share
        Share of the requests since the first plan that were served from a plan.
    identical
        Whether the program printed the same in all three runs.
    faults, faults_with_pool
        Minor page faults while it ran.
    """

    name: str
    blocks: int
    sites: int
    share: float
    identical: bool
    faults: int
    faults_with_pool: int


def measure(name: str, arguments: tuple[str, ...] = ()) -> Row:
    """Run a program in the three ways."""
    script = str(SCRIPTS / f"{name}.py")
    with tempfile.TemporaryDirectory() as folder:
        plain, stats, step = (
            str(Path(folder) / file) for file in ("plain.json", "stats.json", "step.profile")
        )
        outputs = [
            _output("-m", "experiments.measures.plain_script", plain, script, *arguments),
            _output("-m", "stowplan", "profile", "-o", step, script, *arguments),
            _output("-m", "stowplan", "run", "--stats", stats, script, *arguments),
        ]
        profile = Profile.load(step)
        figures = json.loads(Path(stats).read_text())
        faults = json.loads(Path(plain).read_text())["minor_faults"]
    return Row(
        name,
        len(profile),
        len(set(profile.site[profile.site >= 0].tolist())),
        figures["numpy"]["share"],
        len(set(outputs)) == 1,
        faults,
        figures["minor_faults"],
    )


def _output(*arguments: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments], stdout=subprocess.PIPE, check=True
    ).stdout


@click.command()
def main() -> None:
    """Run the three programs, and show the results."""
    rows = [measure(name) for name in track(NAMES, "running", console=Console(stderr=True))]
    table = Table(title="Programs that do not mention stowplan")
    table.add_column("program")
    for column in (
        "blocks in its step",
        "call sites",
        "served from the plan",
        "same output",
        "page faults",
        "with the pool",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        faults = (f"{row.faults:,}", f"{row.faults_with_pool:,}")
        same = "yes" if row.identical else "NO"
        table.add_row(row.name, str(row.blocks), str(row.sites), f"{row.share:.2%}", same, *faults)
    Console().print(table)
    if not all(row.identical for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
