"""``stowplan pack``: place the blocks of a CSV file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ._options import OutputFile


@click.command()
@click.argument("problem", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=OutputFile(), help="Write the CSV with a column offset.")
@click.option("--solver", default="auto", show_default=True, help="A solver's name; auto takes the best.")
@click.option("--plot", type=OutputFile(), help="Write a picture of the placement (PNG).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def pack(problem: Path, output: Path | None, solver: str, plot: Path | None, as_json: bool) -> None:
    """Place the blocks of PROBLEM, a CSV file in google/minimalloc's format.

    Columns, in any order: id, lower, upper (exclusive), size; alignment, gaps and offset (a fixed position) may follow.
    """
    from .. import packing

    if plot is not None:
        from ..plot import require_matplotlib

        require_matplotlib()
    blocks = packing.Problem.from_csv(problem)
    placement = packing.pack(blocks, solver=solver)
    if output is not None:
        blocks.to_csv(output, placement.offsets)
    if plot is not None:
        from ..plot import save_placement

        save_placement(plot, blocks, placement, title=problem.name)
    result = {
        "n": len(blocks),
        "peak": placement.peak,
        "lower_bound": placement.lower_bound,
        "optimal": placement.optimal,
        "solver": placement.solver,
        "seconds": placement.seconds,
    }
    if as_json:
        click.echo(json.dumps(result))
        return
    click.echo(f"{len(blocks)} blocks, solver {placement.solver}, {placement.seconds:.3f} s")
    verdict = "optimal" if placement.optimal else f"at most {placement.gap:.2%} above the optimum"
    click.echo(f"peak {placement.peak} bytes, lower bound {placement.lower_bound} bytes: {verdict}")
