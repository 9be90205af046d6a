"""Recomputation in steps without phases: ``python -m experiments.any_graph``, made graphs of several kinds and sizes.

*layered*: as those of Moccasin (Bartan et al. 2023): operators in layers, each of which reads one of the layer before,
and others from layers back, how many falling geometrically. *training*: as Checkmate's (Jain et al. 2020): a chain with
branches, and back along it; any operator may run again. Seconds and bytes are random.

Budgets are shares of the peak of the best order known (`stowplan.scheduling.ordering`, two seconds), and, as Moccasin's
authors count, of the recorded order's, of which the best order alone saves a part. For the smallest graphs the extra
time that the integer program ``mip`` finds in the best order stands beside: greedy may also reorder.
"""

from __future__ import annotations

import csv
import io
import itertools
import random
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markdown import Markdown

from stowplan.errors import BudgetError
from stowplan.files import atomic_write
from stowplan.scheduling import Relation, StepGraph, as_recorded, check, schedule, simulate
from stowplan.scheduling.ordering import order

FOLDER = Path("build/experiments")
# Operators, edges, width of a layer.
LAYERED = ((16, 35, 3), (100, 236, 8), (250, 944, 12), (500, 2461, 16), (1000, 5857, 24))
TRAINING = (8, 50, 125, 250, 500)
SHARES = (0.9, 0.8)
SMALL = 17


def layered(operators: int, edges: int, width: int, seed: int) -> StepGraph:
    """Make a random layered graph."""
    rng = random.Random(seed)
    reads: list[set[int]] = [set() for _ in range(operators)]

    def layer(number: int) -> range:
        return range(number * width, min(operators, (number + 1) * width))

    for i in range(width, operators):
        reads[i].add(rng.choice(layer(i // width - 1)))
    while sum(map(len, reads)) < edges:
        i, back = rng.randrange(width, operators), 1
        while rng.random() < 0.7:
            back += 1
        if back <= i // width:
            reads[i].add(rng.choice(layer(i // width - back)))
    return _graph([sorted(row) for row in reads], rng)


def training(layers: int, seed: int) -> StepGraph:
    """Make a graph of 2 x layers operators: a layer reads the one before and now and then another; and back."""
    rng = random.Random(seed)
    forward = [sorted({i - 1, rng.randrange(max(0, i - 4), i)}) if i else [] for i in range(layers)]
    reads = list(forward)
    for i in range(layers - 1, -1, -1):
        reads.append([*forward[i], i] + ([len(reads) - 1] if i < layers - 1 else []))
    return _graph(reads, rng)


def _graph(reads: list[list[int]], rng: random.Random) -> StepGraph:
    n = len(reads)
    size, seconds = [rng.randint(1, 100) for _ in range(n)], [float(rng.randint(1, 10)) for _ in range(n)]
    return StepGraph(reads, [[i] for i in range(n)], size, seconds=seconds)


def renumbered(graph: StepGraph, operators: list[int]) -> StepGraph:
    """Return a made graph recorded in another order."""
    place = {operator: position for position, operator in enumerate(operators)}
    reads = Relation(sorted(place[v] for v in graph.reads[o]) for o in operators)
    writes = [[i] for i in range(len(operators))]
    return StepGraph(reads, writes, graph.size[operators], seconds=graph.seconds[operators])


def rows(kind: str, graph: StepGraph, time_limit: float) -> list[dict[str, Any]]:
    """Measure a graph at all shares."""
    best = order(graph, time_limit=2.0)
    found = []
    peaks = {"best": best.peak, "recorded": simulate(graph, as_recorded(graph)).peak}
    for of, share in itertools.product(peaks, SHARES):
        budget = int(share * peaks[of])
        row = {"kind": kind, "operators": len(graph), "of": of, "share": share, "peak_of": peaks[of]}
        row.update(_solved(graph, budget, "auto", time_limit), optimum="")
        if len(graph) <= SMALL and of == "best":
            fixed = renumbered(graph, best.order.tolist())
            row["optimum"] = _solved(fixed, budget, "mip", 60.0)["extra"]
        found.append(row)
    return found


def _solved(graph: StepGraph, budget: int, solver: str, time_limit: float) -> dict[str, Any]:
    began = time.monotonic()
    try:
        solution = schedule(graph, budget, solver, time_limit)
        assert len(graph) > 100 or check(graph, solution.schedule) == solution.peak
        extra, peak = f"{solution.extra_seconds / graph.seconds.sum():.3f}", solution.peak
    except BudgetError as error:
        extra, peak = "none found", error.least
    return {"extra": extra, "peak": peak, "seconds": round(time.monotonic() - began, 1)}


@click.command()
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, show_default=True)
@click.option("--time-limit", type=click.FloatRange(min=0), default=8.0, show_default=True)
@click.option("--most", default=1000, show_default=True, help="Operators of the largest graph.")
def main(folder: Path, time_limit: float, most: int) -> None:
    """Schedule made graphs without phases below the best order's peak, and write a table."""
    graphs = [("layered", layered(*size, 0)) for size in LAYERED]
    graphs += [("training", training(layers, 0)) for layers in TRAINING]
    table = [row for kind, graph in graphs if len(graph) <= most for row in rows(kind, graph, time_limit)]
    lines = [
        "# Recomputation in steps without phases",
        "",
        "`python -m experiments.any_graph`. Extra time: share of the step's. Optimum: of `mip`, in the best order.",
        "",
        "| graph | operators | order | budget / its peak | peak / same | extra time | optimum | planning, s |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for row in table:
        lines.append(
            f"| {row['kind']} | {row['operators']:,} | {row['of']} | {row['share']} "
            f"| {row['peak'] / row['peak_of']:.3f} | {row['extra']} | {row['optimum']} | {row['seconds']} |"
        )
    text = "\n".join([*lines, ""])
    columns = io.StringIO()
    writer = csv.DictWriter(columns, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("any_graph.csv", columns.getvalue()), ("any_graph.md", text)):
        with atomic_write(folder / name) as file:
            file.write(content.encode())
    Console().print(Markdown(text))


if __name__ == "__main__":
    main()
