"""Run every solver over the shared data and over generated problems: ``python -m experiments.packing.benchmark``.

Problems of up to 10^5 blocks, or of as many as ``--largest`` says. Every placement is validated. Solvers that are too
slow for the size of a problem are left out: see `FITS`. Times are wall-clock seconds of one call on one thread, the
best of ``--repeat``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from stowplan.packing import Problem, lower_bound, pack, solvers

from ..measures import output
from ..measures.kept import Row
from .generate import generate
from .inference import NETWORKS

DATA = output.ROOT.parent / "shared" / "data"
"""A folder of folders of CSV files."""
TIME_LIMIT = 10.0
"""Seconds for solvers that could go on; auto alone has a budget of its own."""

# Blocks up to which a solver is worth waiting for; the others take all.
FITS = {"mip": 500, "exact": 5_000, "search": 20_000, "peak_outward": 40_000}
LIVE = (100, 3_000)


def problems(largest: int) -> Iterator[tuple[str, str, Problem]]:
    """Yield family, name and problem: published ones where the data is, then what can be made anywhere."""
    for path in sorted(DATA.glob("*/*.csv")):
        yield path.parent.name, path.stem.split(".1048576")[0], Problem.from_csv(path)
    for name, network in NETWORKS.items():
        yield "inference", name, network()
    for live in LIVE:
        n = 100
        while n <= largest:
            if live < n:
                yield f"generated, {live} live", f"n = {n}", generate(n, live)
            n *= 10


def run(problem: Problem, solver: str, repeat: int) -> Row:
    """Solve ``repeat`` times and return the columns of the best time."""
    limit = None if solver == "auto" else TIME_LIMIT
    best = min(
        (pack(problem, solver, time_limit=limit) for _ in range(repeat)), key=lambda found: found.seconds
    )
    return {
        "solver": solver,
        "peak": best.peak,
        "lower_bound": best.lower_bound,
        "ratio": round(best.peak / max(lower_bound(problem), 1), 6),
        "status": best.status,
        "seconds": round(best.seconds, 4),
        "found_by": best.solver,
    }


@click.command()
@output.out
@click.option(
    "--largest", default=100_000, show_default=True, help="Blocks of the largest generated problem."
)
@click.option("--repeat", default=1, show_default=True, help="Runs of each; the fastest counts.")
@click.option("--only", multiple=True, help="A solver; several times for several.")
def main(out: Path, largest: int, repeat: int, only: tuple[str, ...]) -> None:
    """Run every solver; results appear in the CSV as they come."""
    if not DATA.is_dir():
        click.echo(f"{DATA} is not there: generated problems only", err=True)
    rows: list[Row] = []
    lines: dict[tuple[str, str], Row] = {}
    for family, name, problem in problems(largest):
        about = {"family": family, "problem": name, "n": len(problem)}
        line = lines[family, name] = {"problem": f"{family}: {name}", "n": len(problem)}
        for solver in only or (*solvers, "auto"):
            if len(problem) > FITS.get(solver, len(problem)):
                continue
            rows.append(about | run(problem, solver, repeat))
            line[solver] = "{ratio:.4f} in {seconds:.3f} s".format(**rows[-1])
            output.write_csv(rows, out / "packing.csv")
            click.echo("  ".join(map(str, rows[-1].values())))
    names = dict.fromkeys(row["solver"] for row in rows)
    columns = [output.Column(key, key) for key in ("problem", "n", *names)]
    output.write_table(
        [*lines.values()], columns, out / "packing", "Peak over lower bound, and seconds", "", ()
    )
    output.write_csv(rows, out / "packing.csv")


if __name__ == "__main__":
    main()
