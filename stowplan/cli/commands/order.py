"""``stowplan order``: the order of a step's operators with the least live peak."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...common.units import human_bytes
from . import _look
from ._options import OutputFile, dimension_option, removed_option, solver_option_of, time_limit_option_of
from ._reporter import Answer, reporter

if TYPE_CHECKING:
    from ...scheduling import StepGraph
    from ...scheduling.ordering import OrderSolution


@reporter(
    "Order a step's operators so that the peak is least.",
    "order graph.json.gz -o order.json",
)
@click.argument("graph", type=click.Path(path_type=Path))
@dimension_option
@click.option("-o", "--output", type=OutputFile(), help="Write the order, as a schedule (JSON).")
@solver_option_of("scheduling.ordering")
@time_limit_option_of(10.0)
@removed_option(
    "--plot",
    "-o FILE, and simulate(graph, schedule).live: stowplan report draws plans, and no order of operators",
)
def order(
    graph: Path,
    dimensions: dict[str, int],
    output: Path | None,
    **how: Any,
) -> Answer:
    """Find the order of the operators of GRAPH with the least peak live memory.

    GRAPH is a step graph that stowplan has saved, JSON of the format opgraph-1, gzipped or not, or an ONNX file.
    Nothing is recomputed. Bytes are without the resident tensors. Ctrl-C ends the search and keeps the best order.
    """
    import numpy as np

    from ...scheduling import Schedule, Way, read_graph
    from ...scheduling.ordering import order as solve

    step = read_graph(graph, dimensions)
    with _look.status("ordering", _look.peak_line) as progress:
        found = solve(step, progress=progress, **how)
    if output is not None:
        Schedule(found.order, np.full(step.values, int(Way.KEPT), dtype=np.int64)).save(output)
    names = ("before", "peak", "lower_bound", "optimal", "solver", "seconds")
    figures = {
        "n": len(step),
        **{name: getattr(found, name) for name in names},
        "order": found.order.tolist(),
    }
    return Answer(figures, _parts(graph, step, found))


def _parts(graph: Path, step: StepGraph, found: OrderSolution) -> Iterator[object]:
    yield f"{graph}: {len(step):,} operators, solver {found.solver}, {found.seconds:.3f} s"
    rows = _look.table("Live peak", "", "size", "/ recorded")
    lines = {
        "in the order recorded": found.before,
        "in the order found": found.peak,
        "lower bound": found.lower_bound,
    }
    for name, count in lines.items():
        rows.add_row(name, human_bytes(count), f"{count / found.before:.3f}" if found.before else "")
    yield from ("", rows)
    if found.optimal:
        verdict = "optimal: no order has a smaller peak"
    elif found.lower_bound:
        verdict = f"at most {found.gap:.2%} above the optimum"
    else:
        verdict = "how far above the optimum is not known"
    yield f"{verdict}; resident tensors, not counted: {human_bytes(step.resident_bytes)}"
