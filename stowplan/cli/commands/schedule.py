"""``stowplan schedule``: what less memory costs in time, and a schedule that keeps to a budget."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import BudgetError
from ...units import human_bytes
from ..terminal import say
from . import _look
from ._options import Bytes, Name, OutputFile, dimension_option, json_option, time_limit_option

if TYPE_CHECKING:
    from rich.table import Table

    from ...scheduling import StepGraph
    from ...scheduling.alive import Alive
    from ...scheduling.solve import Solution

_POINTS = 12
_LISTED = 10  # values in the lists of the largest


def _solvers() -> Iterable[str]:
    from ...scheduling import solve  # noqa: F401 (solvers register themselves)
    from ...scheduling.registry import solvers

    return ("auto", *solvers)


@click.command(
    short_help="Lower a step's peak, and say what that costs in time.",
    epilog="Example: stowplan schedule step.graph --budget 600MiB -o schedule.json",
)
@click.argument("graph", type=click.Path(path_type=Path))
@dimension_option
@click.option(
    "--budget",
    type=Bytes(),
    help="For all that the step has alive, like 600MiB; without it, the curve over all budgets.",
)
@click.option(
    "--retained",
    type=Bytes(),
    help="Of the budget, what the program keeps from step to step.  [default: GRAPH's resident values]",
)
@click.option(
    "--solver",
    type=Name("solver", _solvers),
    default="auto",
    show_default=True,
    help="A solver's name; auto takes the best.",
)
@time_limit_option
@click.option("--swap", is_flag=True, help="Values may be swapped out and in, too.")
@click.option(
    "--points",
    type=click.IntRange(min=2),
    help=f"Budgets of the curve, lean and the least included.  [default: {_POINTS}]",
)
@click.option(
    "--plot", type=OutputFile(), help="Write a picture: the curve, and live bytes over the step (PNG, SVG)."
)
@click.option("-o", "--output", type=OutputFile(), help="Write the schedule for the --budget (JSON).")
@json_option
def schedule(
    graph: Path,
    dimensions: dict[str, int],
    budget: int | None,
    retained: int | None,
    solver: str,
    time_limit: float | None,
    swap: bool,
    points: int | None,
    plot: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Lower the live peak of the step of GRAPH: what it costs in time, or a schedule for one budget.

    GRAPH is a step graph: what stowplan profile --graph wrote, JSON of the format opgraph-1, or an ONNX file. Without
    --budget the curve of extra time over memory is printed, from lean, which costs nothing, down to the least. Exit
    status 1, and nothing is written, if no schedule keeps to the budget.
    """
    if output is not None and budget is None:
        raise click.UsageError("-o writes one schedule; expected a --budget")
    if points is not None and budget is not None:
        raise click.UsageError("--points are those of the curve; expected them without --budget")
    if plot is not None:
        from ...insight.plots import require_matplotlib

        require_matplotlib()
    from ...scheduling import as_recorded, simulate
    from ...scheduling.alive import floor_of
    from ...scheduling.bounds import bound_schedules
    from ...scheduling.solve import curve
    from ...scheduling.solve import schedule as solve
    from ._graphs import read_graph, scheduling_line, with_seconds

    step, assumed = with_seconds(read_graph(graph, dimensions))
    kept = step.resident_bytes if retained is None else retained
    how: dict[str, Any] = {"time_limit": time_limit, "swap": swap}
    lean = solve(step, solver="lean")
    try:
        with _look.status("scheduling", scheduling_line, enabled=not as_json) as progress:
            if budget is None:
                found = curve(step, points or _POINTS, solver, progress=progress, **how)
            else:
                chosen = solve(step, max(budget - kept, 0), solver, progress=progress, **how)
                if chosen.peak + kept > budget:
                    raise BudgetError("", chosen.peak, floor_of(step, chosen.schedule), chosen)
                found = [lean, chosen]
    except BudgetError as error:
        say(
            f"Error: {graph}: a step cannot keep to {budget:,} bytes: the least that was found is "
            f"{error.least + kept:,}, {kept:,} of them retained; {error.floor}",
            err=True,
        )
        raise SystemExit(1) from None
    printer = _Printer(
        graph, step, assumed, kept, simulate(step, as_recorded(step)).peak, lean, bound_schedules(step)
    )
    if output is not None:
        found[-1].schedule.save(output)
    if plot is not None:
        from ...insight.plots import save_curve

        save_curve(plot, step, found, lean=lean, lower_bound=printer.bound, title=graph.name)
    if as_json:
        printer.as_json(found, budget)
    else:
        printer.show(found, budget)


class _Printer:
    """Prints a graph and its schedules."""

    def __init__(
        self,
        path: Path,
        graph: StepGraph,
        assumed: bool,
        retained: int,
        recorded: int,
        lean: Solution,
        bound: int,
    ) -> None:
        self.path, self.graph, self.assumed, self.retained = path, graph, assumed, retained
        self.recorded, self.lean, self.bound = recorded, lean, bound
        self.seconds = float(graph.seconds.sum())

    def as_json(self, found: list[Solution], budget: int | None) -> None:
        from ._graphs import figures

        rows = [figures(self.graph, solution, self.lean.peak, self.retained) for solution in found]
        printed: dict[str, Any] = {
            "graph": str(self.path),
            "operators": len(self.graph),
            "values": self.graph.values,
            "step_seconds": self.seconds,
            "assumed_seconds": self.assumed,
            "resident": self.graph.resident_bytes,
            "retained": self.retained,
            "recorded_peak": self.recorded,
            "lean_peak": self.lean.peak,
            "lower_bound": self.bound,
        }
        if budget is None:
            printed["curve"] = rows
        else:
            listed = {
                way: [{"name": self.graph.name[v], "bytes": int(self.graph.size[v])} for v in values]
                for way, values in self._treated(found[-1]).items()
            }
            printed |= {
                "budget": budget,
                "schedule": rows[-1],
                "listed": listed,
                "at_peak": self._peak(found[-1]),
            }
        click.echo(json.dumps(printed))

    def _treated(self, solution: Solution) -> dict[str, list[int]]:
        from ._graphs import treated

        return {way: values[:_LISTED] for way, values in treated(self.graph, solution.schedule).items()}

    def _alive(self, solution: Solution) -> Alive:
        from ...scheduling.alive import alive_at_peak

        return alive_at_peak(self.graph, solution.schedule)

    def _peak(self, solution: Solution) -> dict[str, Any]:
        alive = self._alive(solution)
        return {
            "operator": self.graph.label[alive.operator] if alive.operator >= 0 else None,
            "runs_again": alive.again,
            "workspace": alive.workspace,
            "values": len(alive.storages),
            "alive": [{"name": self.graph.name[v], "bytes": size} for v, size in alive.storages[:_LISTED]],
        }

    # --- for people ---------------------------------------------------------------------------------------------------

    def show(self, found: list[Solution], budget: int | None) -> None:
        head = [
            f"{self.path}: {len(self.graph):,} operators, {self.graph.values:,} values, {self.seconds:.3f} s a step"
        ]
        if self.assumed:
            head.append(
                "The graph has no seconds: each operator is taken to move what it reads and writes at 10 GB/s."
            )
        if budget is None:
            _look.show(*head, "", self._memory(), "", self._curve(found))
            return
        chosen = found[-1]
        share = f" ({chosen.extra_seconds / self.seconds:.1%} of the step)" if self.seconds else ""
        _look.show(*head, "", self._memory(chosen))
        _look.show("", f"{chosen.solver}: {chosen.extra_seconds:.4f} s extra{share}")
        for way, values in self._treated(chosen).items():
            if values:
                _look.show("", self._list(way, values, chosen))
        _look.show("", self._at_peak(chosen))

    def _memory(self, chosen: Solution | None = None) -> Table:
        columns = ("planned peak", "", "/ lean", "with retained")
        rows = _look.table("Memory of the step", "", *columns)
        lines = [("as recorded", self.recorded), ("lean", self.lean.peak)]
        if chosen is not None:
            lines.append(("scheduled", chosen.peak))
        lines.append(("lower bound", self.bound))
        for name, count in lines:
            share = f"{count / self.lean.peak:.3f}" if self.lean.peak else ""
            rows.add_row(name, *_look.size(count), share, human_bytes(count + self.retained))
        return rows

    def _curve(self, found: list[Solution]) -> Table:
        from ._graphs import figures

        lines = [figures(self.graph, solution, self.lean.peak, self.retained) for solution in found]
        ways = [way for way in ("dropped", "packed", "swapped") if any(line[way]["values"] for line in lines)]
        rows = _look.table(
            "Extra time over memory", "planned peak", "/ lean", "--budget", "extra s", "/ step", *ways
        )
        for line in lines:
            rows.add_row(
                human_bytes(line["peak"]),
                f"{line['of_lean']:.3f}",
                f"{line['budget']:,}",
                f"{line['extra_seconds']:.4f}",
                f"{line['extra_share']:.1%}",
                *(f"{line[way]['values']:,}" for way in ways),
            )
        return rows

    def _list(self, way: str, values: list[int], chosen: Solution) -> Table:
        from ._graphs import totals

        whole = totals(self.graph, chosen.schedule)[way]
        rows = _look.table(
            f"{way.capitalize()}: {whole.values:,} values, {human_bytes(whole.bytes)}", "value", "bytes", ""
        )
        for value in values:
            rows.add_row(self.graph.name[value], *_look.size(int(self.graph.size[value])))
        if whole.values > len(values):
            rest = whole.bytes - int(self.graph.size[values].sum())
            rows.add_row(f"{whole.values - len(values):,} others", *_look.size(rest))
        return rows

    def _at_peak(self, chosen: Solution) -> Table:
        alive = self._alive(chosen)
        name = self.graph.label[alive.operator] if alive.operator >= 0 else "nothing"
        again = " again" if alive.again else ""
        rows = _look.table(
            f"Alive at the peak, while {name} runs{again}: {len(alive.storages):,} values",
            "value",
            "bytes",
            "",
            "share",
        )

        def add(what: str, size: int) -> None:
            rows.add_row(what, *_look.size(size), f"{size / chosen.peak:.1%}" if chosen.peak else "")

        for value, size in alive.storages[:_LISTED]:
            add(self.graph.name[value], size)
        rest = alive.storages[_LISTED:]
        if rest:
            add(f"{len(rest):,} others", sum(size for _, size in rest))
        if alive.workspace:
            add(f"workspace of {name}", alive.workspace)
        return rows
