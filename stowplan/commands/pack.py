"""``stowplan pack``: place the blocks of a CSV file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InfeasibleError, MissingDependencyError, UnsupportedConstraintError
from ._options import OutputFile

if TYPE_CHECKING:
    from ..packing import Placement, Problem, Progress

# Seconds that --compare leaves each solver that could go on for ever, where --time-limit says nothing.
_COMPARE_LIMIT = 10.0


@click.command()
@click.argument("problem", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=OutputFile(), help="Write the CSV with a column offset.")
@click.option("--solver", default="auto", show_default=True, help="A solver's name; auto takes the best.")
@click.option("--capacity", type=click.IntRange(min=0), help="Stop at a placement within so many bytes.")
@click.option("--time-limit", type=click.FloatRange(min=0), help="Seconds at most for what could go on.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads at most.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Of solvers that draw numbers.",
)
@click.option("--compare", is_flag=True, help="Try every solver and print a table; the best is written.")
@click.option("--plot", type=OutputFile(), help="Write a picture of the placement (PNG).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def pack(
    problem: Path,
    output: Path | None,
    solver: str,
    capacity: int | None,
    time_limit: float | None,
    threads: int,
    seed: int,
    compare: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Place the blocks of PROBLEM, a CSV file in google/minimalloc's format.

    Columns, in any order: id, lower, upper (exclusive), size; alignment, gaps and offset (a fixed position) may follow.
    Ctrl-C ends the search and keeps the best placement. Exit status 1 where no placement within the capacity is found.
    """
    from .. import packing

    if plot is not None:
        from ..plot import require_matplotlib

        require_matplotlib()
    blocks = packing.Problem.from_csv(problem)
    options = {"threads": threads, "seed": seed, "capacity": capacity, "time_limit": time_limit}
    table: list[dict[str, Any]] = []
    try:
        with _progress(enabled=not as_json) as heard:
            if compare:
                placement = _compare(blocks, options, table, heard)
            else:
                placement = packing.pack(blocks, solver, progress=heard, **options)  # type: ignore[arg-type]
    except InfeasibleError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from None
    if output is not None:
        blocks.to_csv(output, placement.offsets)
    if plot is not None:
        from ..plot import save_placement

        save_placement(plot, blocks, placement, title=problem.name)
    if as_json:
        figures = {"n": len(blocks), **_figures(placement), "witness": placement.witness}
        click.echo(json.dumps({**figures, "solvers": table} if compare else figures))
    else:
        if compare:
            _print_table(table)
        click.echo(f"{len(blocks)} blocks, solver {placement.solver}, {placement.seconds:.3f} s")
        verdict = "optimal" if placement.optimal else f"at most {placement.gap:.2%} above the optimum"
        click.echo(
            f"peak {placement.peak} bytes, lower bound {placement.lower_bound} bytes: {verdict} ({placement.witness})"
        )
    if placement.status == "unknown":
        click.echo(f"Error: no placement within {capacity} bytes was found; one may exist", err=True)
        raise SystemExit(1)


def _figures(placement: Placement) -> dict[str, Any]:
    names = ("peak", "lower_bound", "optimal", "status", "solver", "seconds")
    return {name: getattr(placement, name) for name in names}


def _compare(
    blocks: Problem,
    options: dict[str, Any],
    table: list[dict[str, Any]],
    heard: Callable[[Progress], object] | None,
) -> Placement:
    """Fill the table, one row for each solver; return the placement with the least peak, the first of equals."""
    from .. import packing

    best: Placement | None = None
    if options["time_limit"] is None:
        options = {**options, "time_limit": _COMPARE_LIMIT}
    for name in (*packing.solvers, "auto"):
        try:
            placement = packing.pack(blocks, name, progress=heard, **options)
        except (MissingDependencyError, UnsupportedConstraintError) as error:
            table.append({"name": name, "error": str(error)})
            continue
        table.append({"name": name, **_figures(placement)})
        if best is None or placement.peak < best.peak:
            best = placement
    assert best is not None  # auto is always there
    return best


def _print_table(table: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("solver", "peak", "/ bound", "status", "seconds", "found by"):
        shown.add_column(title, justify="right" if title in ("peak", "/ bound", "seconds") else "left")
    for row in table:
        if "error" in row:
            shown.add_row(row["name"], "", "", row["error"])
            continue
        ratio = row["peak"] / row["lower_bound"] if row["lower_bound"] else 1.0
        found = "" if row["solver"] == row["name"] else row["solver"]
        shown.add_row(
            row["name"], f"{row['peak']}", f"{ratio:.4f}", row["status"], f"{row['seconds']:.3f}", found
        )
    Console().print(shown)


@contextlib.contextmanager
def _progress(*, enabled: bool) -> Iterator[Callable[[Progress], object] | None]:
    """Show the best peak so far on a terminal, where somebody can see it."""
    from rich.console import Console

    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield None
        return
    with console.status("packing", spinner="line") as status:

        def heard(progress: Progress) -> None:
            above = progress.peak / progress.lower_bound - 1 if progress.lower_bound else 0.0
            status.update(
                f"{progress.solver}: peak {progress.peak}, {above:.2%} above the lower bound, {progress.seconds:.1f} s"
            )

        yield heard
