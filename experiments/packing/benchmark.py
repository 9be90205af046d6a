"""Run every solver over the shared data and over generated problems; write a CSV and a table.

::

    python -m experiments.packing.benchmark                      everything up to 10^5 blocks, into build/packing
    python -m experiments.packing.benchmark --largest 1000000

Every placement is validated. Solvers that are too slow for the size of a problem are left out: see `FITS`. Times are
wall-clock seconds of one call on one thread, the best of ``--repeat``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import click

from stowplan.packing import Problem, lower_bound, pack, solvers

from .generate import generate
from .inference import NETWORKS

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
COLUMNS = (
    "family",
    "problem",
    "n",
    "solver",
    "peak",
    "lower_bound",
    "ratio",
    "status",
    "seconds",
    "found_by",
)

# Blocks up to which a solver is worth waiting for; the others take all.
FITS = {
    "mip": 500,
    "exact": 5_000,
    "search": 20_000,
    "peak_outward": 40_000,
}
LIVE = (100, 3_000)


def problems(data: Path, largest: int) -> Iterator[tuple[str, str, Problem]]:
    """Yield family, name and problem: published ones where the data is, then what can be made anywhere."""
    for path in sorted(data.glob("*/*.csv")):
        yield path.parent.name, path.stem.split(".1048576")[0], Problem.from_csv(path)
    for name, network in NETWORKS.items():
        yield "inference", name, network()
    for live in LIVE:
        n = 100
        while n <= largest:
            if live < n:
                yield f"generated, {live} live", f"n = {n}", generate(n, live)
            n *= 10


def run(problem: Problem, solver: str, time_limit: float, repeat: int) -> dict[str, object]:
    """Solve ``repeat`` times and return the columns of the best time."""
    # auto alone has a budget of its own.
    limit = None if solver == "auto" else time_limit
    placements = [pack(problem, solver, time_limit=limit) for _ in range(repeat)]
    best = min(placements, key=lambda p: p.seconds)
    return {
        "solver": solver,
        "peak": best.peak,
        "lower_bound": best.lower_bound,
        "ratio": round(best.peak / max(lower_bound(problem), 1), 6),
        "status": best.status,
        "seconds": round(best.seconds, 4),
        "found_by": best.solver,
    }


@click.command(help=(__doc__ or "").split("\n", maxsplit=1)[0])
@click.option("--data", type=click.Path(path_type=Path), default=DATA, help="Folder of folders of CSV files.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=ROOT / "build" / "packing", help="For results."
)
@click.option(
    "--largest", default=100_000, show_default=True, help="Blocks of the largest generated problem."
)
@click.option("--time-limit", default=10.0, show_default=True, help="Seconds for solvers that could go on.")
@click.option("--repeat", default=1, show_default=True, help="Runs of each; the fastest counts.")
@click.option("--only", multiple=True, help="A solver; several times for several.")
def main(data: Path, out: Path, largest: int, time_limit: float, repeat: int, only: tuple[str, ...]) -> None:
    """Run everything; results appear in the CSV as they come."""
    out.mkdir(parents=True, exist_ok=True)
    if not data.is_dir():
        click.echo(f"{data} is not there: generated problems only", err=True)
    rows: list[dict[str, object]] = []
    with open(out / "benchmark.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()

        for family, name, problem in problems(data, largest):
            for solver in only or (*solvers, "auto"):
                if len(problem) > FITS.get(solver, len(problem)):
                    continue
                about = {"family": family, "problem": name, "n": len(problem)}
                rows.append(about | run(problem, solver, time_limit, repeat))
                writer.writerow(rows[-1])
                file.flush()
                click.echo("  ".join(map(str, rows[-1].values())))
    (out / "benchmark.md").write_text(table(rows), encoding="utf-8")
    click.echo(f"written: {out}/benchmark.csv, benchmark.md")


def table(rows: list[dict[str, object]]) -> str:
    """Peak / lower bound and seconds, one line per problem, as Markdown."""
    names = list(dict.fromkeys(str(row["solver"]) for row in rows))
    lines = ["| problem | n | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for key in dict.fromkeys((row["family"], row["problem"], row["n"]) for row in rows):
        mine = {r["solver"]: r for r in rows if (r["family"], r["problem"], r["n"]) == key}
        cells = [
            f"{mine[name]['ratio']:.4f} in {mine[name]['seconds']:.3f} s" if name in mine else ""
            for name in names
        ]
        lines.append(f"| {key[0]}: {key[1]} | {key[2]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
