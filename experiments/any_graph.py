"""Recomputation in steps without phases: ``python -m experiments.any_graph``, made graphs of up to 2,500 operators.

*layered*: as those of Moccasin (Bartan et al. 2023): operators in layers, each of which reads one of the layer before,
and others from layers back, how many falling geometrically. *training*: as Checkmate's (Jain et al. 2020): a chain with
branches, and back along it; any operator may run again. Seconds and bytes are random.

*step*: a training graph with phases, as a framework records it: the backward pass runs once.

Budgets are shares of the peak of the best order known (`stowplan.scheduling.ordering`, two seconds), and, as Moccasin's
authors count, of the recorded order's, of which the best order alone saves a part. Of the largest graphs and of those
with phases, the recorded order's alone are tried. A budget below the bytes that one operator reads and writes is
impossible.
"""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import click

from stowplan.errors import BudgetError
from stowplan.scheduling import Phase, StepGraph, as_recorded, check, schedule, simulate
from stowplan.scheduling.ordering import order

from .measures import output
from .measures.kept import Row

# Operators, edges, width of a layer.
LAYERED = ((16, 35, 3), (100, 236, 8), (250, 944, 12), (500, 2461, 16), (1000, 5857, 24), (2500, 16250, 38))
TRAINING = (8, 50, 125, 250, 500, 1250)
STEPS = (50, 500, 1250)
SHARES = (0.9, 0.8)
# Graphs of more operators are scheduled at the recorded order's peak alone.
LARGE = 1000
# Seconds for each schedule.
TIME_LIMIT = 10.0


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


def with_phases(graph: StepGraph) -> StepGraph:
    """Return a training graph whose first half is the forward pass, which alone may run again."""
    half = len(graph) // 2
    return StepGraph(
        graph.reads,
        graph.writes,
        graph.size,
        seconds=graph.seconds,
        phase=[Phase.FORWARD] * half + [Phase.BACKWARD] * (len(graph) - half),
        repeatable=[i < half for i in range(len(graph))],
    )


def _graph(reads: list[list[int]], rng: random.Random) -> StepGraph:
    n = len(reads)
    size, seconds = [rng.randint(1, 100) for _ in range(n)], [float(rng.randint(1, 10)) for _ in range(n)]
    return StepGraph(reads, [[i] for i in range(n)], size, seconds=seconds)


def rows(kind: str, graph: StepGraph) -> list[Row]:
    """Measure a graph at all shares."""
    peaks = {"recorded": simulate(graph, as_recorded(graph)).peak}
    if len(graph) <= LARGE and not graph.has_phases():
        peaks = {"best": order(graph, time_limit=2.0).peak, **peaks}
    found = []
    for of, share in itertools.product(peaks, SHARES):
        row: Row = {"kind": kind, "operators": len(graph), "of": of, "share": share, "peak_of": peaks[of]}
        began, budget = time.monotonic(), int(share * peaks[of])
        row["extra"], row["peak"] = solved(graph, budget)
        found.append(
            row | {"seconds": round(time.monotonic() - began, 1), "possible": _least(graph) <= budget}
        )
    return found


def _least(graph: StepGraph) -> int:
    """Return the most bytes that one operator of a made graph reads and writes; no schedule's peak is less."""
    return max(
        sum(int(graph.size[value]) for value in {*reads, *writes})
        for reads, writes in zip(graph.reads, graph.writes, strict=True)
    )


def solved(graph: StepGraph, budget: int) -> tuple[float | None, int]:
    """Return the extra time, a share of the step's, None where no schedule is found; and the peak."""
    try:
        solution = schedule(graph, budget, time_limit=TIME_LIMIT)
    except BudgetError as error:
        return None, error.least
    assert len(graph) > 100 or check(graph, solution.schedule) == solution.peak
    return solution.extra_seconds / float(graph.seconds.sum()), solution.peak


COLUMNS = (
    output.Column("graph", "kind"),
    output.Column("operators", "operators", "{:,}".format),
    output.Column("order", "of"),
    output.Column("budget / its peak", "share"),
    output.Column("peak / same", lambda row: row["peak"] / row["peak_of"], "{:.3f}".format),
    output.Column("extra time", lambda row: _share(row["extra"]) if row["possible"] else "impossible"),
    output.Column("planning, s", "seconds"),
)


NOTE = (
    f"{TIME_LIMIT:.0f} s for each schedule. Extra time: share of the step's. Graphs named *step* have phases."
)


def _share(extra: float | None) -> str:
    return "none found" if extra is None else f"{extra:.3f}"


@click.command()
@output.out
def main(out: Path) -> None:
    """Schedule made graphs below their orders' peaks, and write a table."""
    graphs = [("layered", layered(*size, 0)) for size in LAYERED]
    graphs += [("training", training(layers, 0)) for layers in TRAINING]
    graphs += [("step", with_phases(training(layers, 0))) for layers in STEPS]
    table = [row for kind, graph in graphs for row in rows(kind, graph)]
    title = "Recomputation in steps without phases"
    output.write_table(table, COLUMNS, out / "any_graph", title, NOTE, ())
    output.show(out / "any_graph")


if __name__ == "__main__":
    main()
