"""Run every solver over the shared data and over generated problems; write a CSV, a table and two pictures.

::

    python -m experiments.packing.benchmark                          everything up to 10^5 blocks, into build/packing
    python -m experiments.packing.benchmark --largest 1000000
    python -m experiments.packing.benchmark --peer PATH/minimalloc   google/minimalloc beside `exact`, same capacity

Every placement is validated. Solvers that are too slow for the size of a problem are left out: see `FITS`. Times are
wall-clock seconds of one call on one thread, the best of ``--repeat``.
"""

from __future__ import annotations

import csv
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np

from stowplan.packing import Problem, check_fast, lower_bound, pack, solvers

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
    "greedy_by_size": 40_000,
    "greedy_by_breadth": 40_000,
    "greedy_in_order": 40_000,
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


def run_peer(binary: Path, problem: Problem, capacity: int, time_limit: float) -> dict[str, object]:
    """Time a minimalloc binary, reading and writing its files included, and validate its answer."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "in.csv", Path(folder) / "out.csv"
        problem.to_csv(question)
        command = [str(binary), f"--capacity={capacity}", f"--input={question}", f"--output={answer}"]
        began = time.perf_counter()
        try:
            subprocess.run(command, capture_output=True, timeout=time_limit, check=True)
            status = "feasible"
        except subprocess.TimeoutExpired:
            status = "unknown"
        except subprocess.CalledProcessError:
            status = "failed"
        seconds = time.perf_counter() - began
        peak = 0
        if status == "feasible":
            offsets = Problem.from_csv(answer).fixed
            check_fast(problem, offsets)
            peak = int((offsets + problem.size).max())
    bound = lower_bound(problem)
    row = {"peak": peak, "lower_bound": bound, "ratio": round(peak / bound, 6)}
    return {
        "solver": f"minimalloc, given {capacity}",
        **row,
        "status": status,
        "seconds": round(seconds, 4),
        "found_by": "",
    }


def run_given(problem: Problem, capacity: int, time_limit: float) -> dict[str, object]:
    """`exact` on the same question as the peer."""
    placement = pack(problem, "exact", capacity=capacity, time_limit=time_limit)
    return {
        "solver": f"exact, given {capacity}",
        "peak": placement.peak,
        "lower_bound": placement.lower_bound,
        "ratio": round(placement.peak / placement.lower_bound, 6),
        "status": placement.status,
        "seconds": round(placement.seconds, 4),
        "found_by": placement.solver,
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
@click.option("--peer", type=click.Path(path_type=Path, exists=True), help="A minimalloc binary.")
def main(
    data: Path,
    out: Path,
    largest: int,
    time_limit: float,
    repeat: int,
    only: tuple[str, ...],
    peer: Path | None,
) -> None:
    """Run everything; results appear in the CSV as they come."""
    out.mkdir(parents=True, exist_ok=True)
    if not data.is_dir():
        click.echo(f"{data} is not there: generated problems only", err=True)
    rows: list[dict[str, object]] = []
    with open(out / "benchmark.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()

        def add(family: str, name: str, problem: Problem, figures: Callable[[], dict[str, object]]) -> None:
            row = {"family": family, "problem": name, "n": len(problem), **figures()}
            rows.append(row)
            writer.writerow(row)
            file.flush()
            click.echo("  ".join(str(row[c]) for c in COLUMNS))

        for family, name, problem in problems(data, largest):
            for solver in only or (*solvers, "auto"):
                if len(problem) <= FITS.get(solver, len(problem)):
                    add(family, name, problem, lambda p=problem, s=solver: run(p, s, time_limit, repeat))  # type: ignore[misc]
            if peer is not None and family == "minimalloc" and len(problem) > 100:
                for figures in (
                    lambda p=problem: run_peer(peer, p, 2**20, time_limit),
                    lambda p=problem: run_given(p, 2**20, time_limit),
                ):
                    add(family, name, problem, figures)  # type: ignore[arg-type]
    (out / "benchmark.md").write_text(table(rows), encoding="utf-8")
    draw(rows, out)
    click.echo(f"written: {out}/benchmark.csv, benchmark.md, ratio.png, seconds.png")


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


def draw(rows: list[dict[str, object]], out: Path) -> None:
    """Draw both measures against n, over the generated problems, a line for each solver."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    for measure, label in (("ratio", "peak / lower bound"), ("seconds", "seconds")):
        figure = Figure(figsize=(11, 5), dpi=130, layout="constrained")
        FigureCanvasAgg(figure)
        for axes, live in zip(figure.subplots(1, len(LIVE), sharey=True), LIVE, strict=True):
            mine = [row for row in rows if row["family"] == f"generated, {live} live"]
            for solver in dict.fromkeys(str(row["solver"]) for row in mine):
                points = [(row["n"], row[measure]) for row in mine if row["solver"] == solver]
                axes.plot(*np.array(points, dtype=float).T, marker="o", markersize=3, label=solver)
            axes.set_xscale("log")
            if measure == "seconds":
                axes.set_yscale("log")
            axes.set_title(f"about {live} blocks alive at a time")
            axes.set_xlabel("blocks")
            axes.grid(alpha=0.3)
        figure.axes[0].set_ylabel(label)
        if figure.axes[0].lines:
            figure.axes[0].legend(fontsize=8)
        figure.savefig(out / f"{measure}.png")


if __name__ == "__main__":
    main()
