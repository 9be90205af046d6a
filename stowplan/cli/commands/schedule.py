"""``stowplan schedule``: what less memory costs in time, and a schedule that keeps to a budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...common.errors import BudgetError
from ...common.units import human_bytes
from . import _look
from ._options import (
    BYTES,
    OutputFile,
    dimension_option,
    removed_option,
    solver_option_of,
    time_limit_option,
)
from ._reporter import Answer, bad_news, reporter

if TYPE_CHECKING:
    from rich.table import Table

    from ...scheduling import StepGraph
    from ...scheduling.solve import Solution

_POINTS = 12
_LISTED = 10  # values in the lists of the largest


@reporter(
    "Lower a step's peak, and show what that costs in time.",
    "schedule step.graph --budget 600MiB -o schedule.json",
)
@click.argument("graph", type=click.Path(path_type=Path))
@dimension_option
@click.option(
    "--budget",
    type=BYTES,
    help="The most live bytes of the step, like 600MiB; without it, print the curve over all budgets.",
)
@click.option(
    "--retained",
    type=BYTES,
    help="The part of the budget that the program keeps from step to step.  [default: GRAPH's resident values]",
)
@solver_option_of("scheduling")
@time_limit_option
@click.option("--swap", is_flag=True, help="Allow offloading to a file as well.")
@click.option(
    "--points",
    type=click.IntRange(min=2),
    help=f"Budgets of the curve, lean and the least included.  [default: {_POINTS}]",
)
@removed_option(
    "--plot", "the table that it prints, or --json: stowplan report draws plans, and no schedule of operators"
)
@click.option("-o", "--output", type=OutputFile(), help="Write the schedule for the --budget (JSON).")
def schedule(
    graph: Path,
    dimensions: dict[str, int],
    budget: int | None,
    retained: int | None,
    points: int | None,
    output: Path | None,
    **how: Any,
) -> Answer:
    """Lower the peak live memory of the step of GRAPH: print the cost in time, or write a schedule for one budget.

    GRAPH is a step graph that stowplan profile --graph wrote, JSON of the format opgraph-1, or an ONNX file. Without
    --budget it prints the curve of extra time over memory, from lean, which costs no time, down to the least. Exit
    status 1, and nothing is written, if no schedule keeps to the budget.
    """
    if output is not None and budget is None:
        raise click.UsageError("-o writes one schedule; expected a --budget")
    if points is not None and budget is not None:
        raise click.UsageError("--points are those of the curve; expected them without --budget")
    from ...scheduling import as_recorded, simulate
    from ...scheduling.bounds import bound_schedules
    from ...scheduling.solve import schedule as solve
    from ._graphs import figures as figures_of
    from ._graphs import read_graph, with_seconds

    step, assumed = with_seconds(read_graph(graph, dimensions))
    kept = step.resident_bytes if retained is None else retained
    lean = solve(step, solver="lean")
    try:
        found = _solve(step, lean, None if budget is None else budget - kept, points or _POINTS, how)
    except BudgetError as error:
        raise bad_news(
            f"{graph}: a step cannot keep to {budget:,} bytes: the least that was found is "
            f"{error.least + kept:,}, {kept:,} of them retained; {error.floor}"
        ) from None
    figures: dict[str, Any] = {
        "graph": str(graph),
        "operators": len(step),
        "values": step.values,
        "step_seconds": float(step.seconds.sum()),
        "assumed_seconds": assumed,
        "resident": step.resident_bytes,
        "retained": kept,
        "recorded_peak": simulate(step, as_recorded(step)).peak,
        "lean_peak": lean.peak,
        "lower_bound": bound_schedules(step),
    }
    if output is not None:
        found[-1].schedule.save(output)
    if budget is not None:
        return _for_budget(step, found[-1], figures, budget)
    lines = [figures_of(step, solution, lean.peak, kept) for solution in found]
    return Answer({**figures, "curve": lines}, _curve(figures, lines))


def _solve(
    step: StepGraph, lean: Solution, budget: int | None, points: int, how: dict[str, Any]
) -> list[Solution]:
    """Return the schedules of the curve, or lean and the one for a budget, without what is retained."""
    from ...scheduling.peak_explanation import floor_of
    from ...scheduling.solve import curve
    from ...scheduling.solve import schedule as solve
    from ._graphs import scheduling_line

    with _look.status("scheduling", scheduling_line) as progress:
        if budget is None:
            return curve(step, points, progress=progress, **how)
        chosen = solve(step, max(budget, 0), progress=progress, **how)
    if chosen.peak > budget:
        raise BudgetError("", chosen.peak, floor_of(step, chosen.schedule), chosen)
    return [lean, chosen]


def _head(figures: dict[str, Any], peak: int | None = None) -> Iterator[object]:
    """Yield lines on a graph, and a table of its peaks; ``peak``: that of the schedule chosen."""
    yield (
        f"{figures['graph']}: {figures['operators']:,} operators, {figures['values']:,} values, "
        f"{figures['step_seconds']:.3f} s a step"
    )
    if figures["assumed_seconds"]:
        yield "The graph has no seconds: each operator is taken to move what it reads and writes at 10 GB/s."
    lean = figures["lean_peak"]
    lines = {
        "as recorded": figures["recorded_peak"],
        "lean": lean,
        "scheduled": peak,
        "lower bound": figures["lower_bound"],
    }
    rows = _look.table("Memory of the step", "", "planned peak", "/ lean", "with retained")
    for name, count in lines.items():
        if count is not None:
            share = f"{count / lean:.3f}" if lean else ""
            rows.add_row(name, human_bytes(count), share, human_bytes(count + figures["retained"]))
    yield from ("", rows, "")


def _curve(figures: dict[str, Any], lines: list[dict[str, Any]]) -> Iterator[object]:
    yield from _head(figures)
    ways = [way for way in ("dropped", "packed", "swapped") if any(line[way]["values"] for line in lines)]
    columns = ("planned peak", "/ lean", "--budget", "extra s", "/ step", *ways)
    rows = _look.table("Extra time over memory", *columns)
    for line in lines:
        rows.add_row(
            human_bytes(line["peak"]),
            f"{line['of_lean']:.3f}",
            f"{line['budget']:,}",
            f"{line['extra_seconds']:.4f}",
            f"{line['extra_share']:.1%}",
            *(f"{line[way]['values']:,}" for way in ways),
        )
    yield rows


def _for_budget(step: StepGraph, chosen: Solution, figures: dict[str, Any], budget: int) -> Answer:
    """Answer with one schedule, the values that it treats, and those alive at its peak."""
    from ...scheduling.peak_explanation import alive_at_peak
    from ._graphs import figures as figures_of
    from ._graphs import treated

    line = figures_of(step, chosen, figures["lean_peak"], figures["retained"])
    changed = {
        way: [(step.name[value], int(step.size[value])) for value in values]
        for way, values in treated(step, chosen.schedule).items()
    }
    peak = alive_at_peak(step, chosen.schedule)
    alive = [(step.name[value], size) for value, size in peak.storages]
    operator = step.label[peak.operator] if peak.operator >= 0 else None
    at_peak = {
        "operator": operator,
        "runs_again": peak.again,
        "workspace": peak.workspace,
        "values": len(alive),
        "alive": _listed(alive),
    }

    def parts() -> Iterator[object]:
        yield from _head(figures, chosen.peak)
        share = f" ({line['extra_share']:.1%} of the step)" if figures["step_seconds"] else ""
        yield f"{chosen.solver}: {chosen.extra_seconds:.4f} s extra{share}"
        for way, values in changed.items():
            if values:
                size = human_bytes(sum(size for _, size in values))
                yield from ("", _values(f"{way.capitalize()}: {len(values):,} values, {size}", values))
        name = operator or "nothing"
        title = f"Alive at the peak, while {name} runs{' again' if peak.again else ''}: {len(alive):,} values"
        workspace = [(f"workspace of {name}", peak.workspace)] if peak.workspace else []
        yield from ("", _values(title, alive, workspace, chosen.peak))

    listed = {way: _listed(values) for way, values in changed.items()}
    whole = {**figures, "budget": budget, "schedule": line, "listed": listed, "at_peak": at_peak}
    return Answer(whole, parts())


def _listed(values: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"name": name, "bytes": size} for name, size in values[:_LISTED]]


def _values(
    title: str,
    values: list[tuple[str, int]],
    more: list[tuple[str, int]] | None = None,
    peak: int | None = None,
) -> Table:
    """Return a table of the largest values, and of what stands below them; with shares of a peak, if there is one."""
    rows = _look.table(title, "value", "size", *([] if peak is None else ["share"]))
    rest = values[_LISTED:]
    others = [(f"{len(rest):,} others", sum(size for _, size in rest))] if rest else []
    for name, size in (*values[:_LISTED], *others, *(more or [])):
        rows.add_row(name, human_bytes(size), *([f"{size / peak:.1%}"] if peak else []))
    return rows
