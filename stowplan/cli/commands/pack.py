"""``stowplan pack``: place the blocks of a CSV file, or of a step graph on several streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...common.errors import (
    FormatError,
    GraphError,
    InfeasibleError,
    MissingDependencyError,
    UnsupportedConstraintError,
)
from ...common.minimalloc import has_last_ticks
from ...common.units import counted, human_bytes
from . import _look
from ._options import (
    BYTES,
    OutputFile,
    removed_option,
    solver_option,
    threads_option,
    time_limit_option,
)
from ._reporter import Answer, bad_news, reporter

if TYPE_CHECKING:
    from rich.table import Table

    from ...packing import PackingProgress, Placement, Problem

# Seconds that --compare gives each solver that would not stop by themselves, without a --time-limit.
_COMPARE_LIMIT = 10.0


@reporter("Place the blocks of a packing problem or a step graph.", "pack problem.csv -o answer.csv")
@click.argument("problem", type=click.Path(path_type=Path), required=False)
@click.option("--graph", type=click.Path(path_type=Path), help="Place the tensors of a step graph instead.")
@click.option(
    "--streams",
    type=click.Path(path_type=Path),
    help="CSV of operator and stream, in the order in which each stream runs; without it, one stream runs all.",
)
@click.option("-o", "--output", type=OutputFile(), help="Write the CSV with a column offset.")
@solver_option
@click.option("--capacity", type=BYTES, help="Stop at a placement within so many bytes, like 16GiB.")
@time_limit_option
@threads_option
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of solvers that draw random numbers."
)
@click.option("--compare", is_flag=True, help="Try every solver and print a table; the best is written.")
@removed_option("--plot", "stowplan report PROBLEM, which draws it")
def pack(
    problem: Path | None,
    graph: Path | None,
    streams: Path | None,
    output: Path | None,
    solver: str,
    compare: bool,
    **options: Any,
) -> Answer:
    """Place the blocks of PROBLEM: a CSV file in google/minimalloc's format, or the step of a profile.

    PROBLEM may be any file that stowplan convert reads; of a profile, the planned blocks are placed, by their numbers.
    A CSV file's columns, in any order, are id, lower, upper (exclusive; or end, the last tick) and size; alignment,
    gaps and offset (a fixed position) are optional. With --graph (a file that stowplan order reads), two tensors share
    memory only where data and the order of each stream ensure that all uses of one are over when the other begins, at
    any speed of the streams. Ctrl-C ends the search and keeps the best placement. Exit status 1 if no placement within
    the capacity is found.
    """
    from ... import packing

    if (problem is None) == (graph is None) or (streams is not None and graph is None):
        raise click.UsageError("expected PROBLEM, or --graph with or without --streams")
    source = problem or graph
    assert source is not None
    blocks = _of_file(source) if graph is None else _of_graph(graph, streams)
    solvers: list[dict[str, Any]] = []
    try:
        with _look.status("packing", _look.packing_line) as progress:
            if compare:
                placement = _compare(blocks, options, solvers, progress)
            else:
                placement = packing.pack(blocks, solver, progress=progress, **options)
    except InfeasibleError as error:
        raise bad_news(str(error)) from None
    if output is not None:
        blocks.to_csv(output, placement.offsets)
    figures = {"n": len(blocks), **_figures(placement), "witness": placement.witness}
    if graph is not None:
        figures["apart"] = len(blocks.apart)
    return Answer(
        {**figures, "solvers": solvers} if compare else figures,
        _parts(
            source,
            blocks,
            placement,
            solvers,
            inclusive=graph is None and _is_csv(source) and has_last_ticks(source),
        ),
        bad=placement.status == "unknown",
        why=f"no placement within {options['capacity']} bytes was found; one may exist",
    )


def _parts(
    source: Path, blocks: Problem, placement: Placement, solvers: list[dict[str, Any]], inclusive: bool
) -> Iterator[object]:
    apart = f", {counted(len(blocks.apart), 'pair')} kept apart" if len(blocks.apart) else ""
    yield f"{source}: {counted(len(blocks), 'block')}{apart}, solver {placement.solver}, {placement.seconds:.3f} s"
    if inclusive:
        yield "column 'end': the last tick of each lifetime, inclusive; name it 'upper' if it is the first tick after"
    yield ""
    if solvers:
        yield from (_solvers_table(solvers), "")
    rows = _look.table("Memory", "", "size")
    rows.add_row("lower bound", human_bytes(placement.lower_bound))
    rows.add_row("arena", human_bytes(placement.peak))
    yield rows
    verdict = "optimal" if placement.optimal else f"at most {placement.gap:.2%} above the optimum"
    if fixed := int((blocks.fixed >= 0).sum()):
        verdict += f" with the {counted(fixed, 'offset')} that the file fixes"
    yield f"{verdict}: {placement.witness}"


def _is_csv(source: Path) -> bool:
    """Whether a file is google/minimalloc's, or of no known format: then its reader tells what is wrong."""
    from ...profiler import formats

    try:
        return formats.detect(source) == "minimalloc"
    except FormatError:
        return True


def _of_file(source: Path) -> Problem:
    from ...insight.comparison import alignment_of
    from ...packing import Problem
    from ...planning.plan import problem_of
    from ...profiler import formats

    if _is_csv(source):
        return Problem.from_csv(source)
    profile = formats.read(source)
    steps, rows = problem_of(profile, alignment_of(profile))
    return Problem(
        steps.size, steps.start, steps.end, gaps=steps.gaps, alignment=steps.alignment, id=rows.tolist()
    )


def _of_graph(graph: Path, streams: Path | None) -> Problem:
    from ...scheduling import read_graph, read_streams, safe_reuse

    step = read_graph(graph)
    rows = [list(range(len(step)))] if streams is None else read_streams(streams, step)
    try:
        return safe_reuse(step, rows).problem
    except GraphError as error:
        raise FormatError(streams or graph, str(error)) from None


def _figures(placement: Placement) -> dict[str, Any]:
    names = ("peak", "lower_bound", "optimal", "status", "solver", "seconds")
    return {name: getattr(placement, name) for name in names}


def _compare(
    blocks: Problem,
    options: dict[str, Any],
    table: list[dict[str, Any]],
    progress: Callable[[PackingProgress], object] | None,
) -> Placement:
    """Fill the table, one row for each solver; return the placement with the least peak, the first of equals."""
    from ... import packing
    from ...packing.registry import load

    best: Placement | None = None
    if options["time_limit"] is None:
        options = {**options, "time_limit": _COMPARE_LIMIT}
    for name in (*load(), "auto"):
        try:
            placement = packing.pack(blocks, name, progress=progress, **options)
        except (MissingDependencyError, UnsupportedConstraintError) as error:
            table.append({"name": name, "error": str(error)})
            continue
        table.append({"name": name, **_figures(placement)})
        if best is None or placement.peak < best.peak:
            best = placement
    assert best is not None  # auto is always there
    return best


def _solvers_table(table: list[dict[str, Any]]) -> Table:
    columns = ("solver", "peak", "/ bound", "status", "seconds", "found by")
    shown = _look.table("All solvers", *columns, left=("status", "found by"))
    for row in sorted(table, key=lambda row: row.get("peak", math.inf)):
        if "error" in row:
            shown.add_row(row["name"], "", "", row["error"])
            continue
        ratio = row["peak"] / row["lower_bound"] if row["lower_bound"] else 1.0
        found = "" if row["solver"] == row["name"] else row["solver"]
        shown.add_row(
            row["name"],
            human_bytes(row["peak"]),
            f"{ratio:.4f}",
            row["status"],
            f"{row['seconds']:.3f}",
            found,
        )
    return shown
