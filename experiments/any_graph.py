"""Recomputation in steps without phases: ``python -m experiments.any_graph``, made graphs of several kinds and sizes.

Two tables. The first one shows graphs of up to 2,500 operators, the second one small graphs beside the optimum.

*layered*: as those of Moccasin (Bartan et al. 2023): operators in layers, each of which reads one of the layer before,
and others from layers back, how many falling geometrically. *training*: as Checkmate's (Jain et al. 2020): a chain with
branches, and back along it; any operator may run again. Seconds and bytes are random.

*skipping*: a chain, half of whose operators also read one of up to six places back. *step*: a training graph with
phases, as a framework records it: the backward pass runs once.

Budgets are shares of the peak of the best order known (`stowplan.scheduling.ordering`, two seconds), and, as Moccasin's
authors count, of the recorded order's, of which the best order alone saves a part. Of the largest graphs and of those
with phases, the recorded order's alone are tried. A budget below the bytes that one operator reads and writes is
impossible.

The optimum is what the integer program ``mip`` finds and proves in the best order, which it may not change. Beside it
stands what ``auto`` finds in this order, and in any.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import click

from stowplan.errors import BudgetError
from stowplan.scheduling import Phase, Relation, StepGraph, as_recorded, check, schedule, simulate
from stowplan.scheduling.ordering import order

from .measures import output
from .measures.kept import Row, write_text

# Operators, edges, width of a layer.
LAYERED = ((16, 35, 3), (100, 236, 8), (250, 944, 12), (500, 2461, 16), (1000, 5857, 24), (2500, 16250, 38))
TRAINING = (8, 50, 125, 250, 500, 1250)
STEPS = (50, 500, 1250)
SHARES = (0.9, 0.8)
# Graphs of more operators are scheduled at the recorded order's peak alone.
LARGE = 1000
# Operators of the graphs that are compared with the optimum; how many of each kind; seconds for the program.
SMALL, SEEDS, PROGRAM_SECONDS = (10, 12, 14, 16, 18, 20), 3, 60.0


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


def skipping(operators: int, seed: int) -> StepGraph:
    """Make a chain with skips."""
    rng = random.Random(seed)
    reads: list[list[int]] = [[]]
    for i in range(1, operators):
        skip = [rng.randrange(max(0, i - 6), i)] if rng.random() < 0.5 else []
        reads.append(sorted({i - 1, *skip}))
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


def renumbered(graph: StepGraph, operators: list[int]) -> StepGraph:
    """Return a made graph recorded in another order."""
    place = {operator: position for position, operator in enumerate(operators)}
    reads = Relation(sorted(place[v] for v in graph.reads[o]) for o in operators)
    writes = [[i] for i in range(len(operators))]
    return StepGraph(reads, writes, graph.size[operators], seconds=graph.seconds[operators])


def rows(kind: str, graph: StepGraph, time_limit: float) -> list[Row]:
    """Measure a graph at all shares."""
    peaks = {"recorded": simulate(graph, as_recorded(graph)).peak}
    if len(graph) <= LARGE and not graph.has_phases():
        peaks = {"best": order(graph, time_limit=2.0).peak, **peaks}
    found = []
    for of, share in itertools.product(peaks, SHARES):
        row: Row = {"kind": kind, "operators": len(graph), "of": of, "share": share, "peak_of": peaks[of]}
        began = time.monotonic()
        budget = int(share * peaks[of])
        extra, peak, _ = solved(graph, budget, "auto", time_limit)
        row.update(
            extra=extra,
            peak=peak,
            seconds=round(time.monotonic() - began, 1),
            possible=_least(graph) <= budget,
        )
        found.append(row)
    return found


def _least(graph: StepGraph) -> int:
    """Return the most bytes that one operator of a made graph reads and writes; no schedule's peak is less."""
    return max(
        sum(int(graph.size[value]) for value in {*reads, *writes})
        for reads, writes in zip(graph.reads, graph.writes, strict=True)
    )


def beside_optimum(kind: str, graph: StepGraph, seed: int) -> list[Row]:
    """Compare what is found for a small graph with the optimum in the best order, at all shares."""
    best = order(graph, time_limit=2.0)
    fixed = renumbered(graph, best.order.tolist())
    found = []
    for share in SHARES:
        budget = int(share * best.peak)
        began = time.monotonic()
        optimum, _, proved = solved(fixed, budget, "mip", PROGRAM_SECONDS)
        # A program without a solution is proved to have none, unless its time was over.
        proved |= optimum is None and time.monotonic() - began < PROGRAM_SECONDS
        row: Row = {"kind": kind, "operators": len(graph), "share": share, "seed": seed}
        row.update(optimum=optimum, proved=proved, same=solved(fixed, budget, "auto", reorder=False)[0])
        row["any"] = solved(graph, budget, "auto")[0]
        found.append(row)
    return found


def solved(
    graph: StepGraph, budget: int, solver: str, time_limit: float | None = None, *, reorder: bool = True
) -> tuple[float | None, int, bool]:
    """Return the extra time, a share of the step's, None where no schedule is found; the peak; whether it is proved."""
    try:
        solution = schedule(graph, budget, solver, time_limit, reorder=reorder)
    except BudgetError as error:
        return None, error.least, False
    assert len(graph) > 100 or check(graph, solution.schedule) == solution.peak
    return solution.extra_seconds / float(graph.seconds.sum()), solution.peak, solution.optimal


def small_graphs(most: int) -> Iterator[tuple[str, StepGraph, int]]:
    """Make the graphs that are compared with the optimum: kind, graph, seed."""
    for n, seed in itertools.product(SMALL, range(SEEDS)):
        if n <= most:
            yield "layered", layered(n, 22 * n // 10, 3, seed), seed
            yield "training", training(n // 2, seed), seed
            yield "skipping", skipping(n, seed), seed


def over(row: Row, way: str) -> float | None:
    """Return the extra time found over the proved optimum, less 1; None where there is nothing to compare."""
    if not row["proved"] or row["optimum"] is None:
        return None
    return math.inf if row[way] is None else (row[way] + 1e-12) / (row["optimum"] + 1e-12) - 1


def summary(table: list[Row]) -> str:
    """Say how far from the optimum the schedules found are."""
    parts = []
    for way, where in (("same", "In the same order"), ("any", "In any order")):
        compared = [ratio for row in table if (ratio := over(row, way)) is not None]
        equal, faster = sum(abs(r) < 1e-6 for r in compared), sum(r <= -1e-6 for r in compared)
        parts.append(
            f"{where}: {len(compared)} compared, {equal} equal, {faster} faster, "
            f"{sum(r > 0.02 for r in compared)} slower by more than 2 % (the most: {max(compared):.1%})."
        )
    none = [row for row in table if row["proved"] and row["optimum"] is None]
    more = sum(row["any"] is not None for row in none)
    parts.append(
        f"No schedule in the best order keeps to {len(none)} budgets; "
        f"one in another order is found for {more} of them."
    )
    return " ".join(parts)


COLUMNS = (
    output.Column("graph", "kind"),
    output.Column("operators", "operators", "{:,}".format),
    output.Column("order", "of"),
    output.Column("budget / its peak", "share"),
    output.Column("peak / same", lambda row: row["peak"] / row["peak_of"], "{:.3f}".format),
    output.Column("extra time", lambda row: _share(row["extra"]) if row["possible"] else "impossible"),
    output.Column("planning, s", "seconds"),
)
SMALL_COLUMNS = (
    output.Column("graph", "kind"),
    output.Column("operators", "operators"),
    output.Column("seed", "seed"),
    output.Column("budget / best peak", "share"),
    output.Column("optimum", lambda row: _optimum(row)),
    output.Column("found in that order", lambda row: _share(row["same"])),
    output.Column("found in any order", lambda row: _share(row["any"])),
)


def text_of(table: list[Row], small: list[Row]) -> str:
    """Write both tables in Markdown."""
    lines = [
        "# Recomputation in steps without phases",
        "",
        "`python -m experiments.any_graph`, 10 s for each schedule. Extra time: share of the step's. Graphs named "
        "*step* have phases.",
        "",
        *output.markdown(table, COLUMNS),
        "",
        "## Beside the optimum",
        "",
        f"Extra time. Optimum: of `mip` in the best order, in {PROGRAM_SECONDS:.0f} s. None: it proves that no "
        "schedule in this order keeps to the budget. Found: by `auto`. " + summary(small),
        "",
        *output.markdown(small, SMALL_COLUMNS),
        "",
    ]
    return "\n".join(lines)


def _optimum(row: Row) -> str:
    found = "none" if row["optimum"] is None else _share(row["optimum"])
    return found if row["proved"] else f"{found} (not proved)"


def _share(extra: float | None) -> str:
    return "none found" if extra is None else f"{extra:.3f}"


@click.command()
@output.out
@click.option("--time-limit", type=click.FloatRange(min=0), default=10.0, show_default=True)
@click.option("--most", default=2500, show_default=True, help="Operators of the largest graph.")
@click.option("--small", "most_small", default=20, show_default=True, help="... beside the optimum.")
def main(out: Path, time_limit: float, most: int, most_small: int) -> None:
    """Schedule made graphs below their orders' peaks, and write two tables."""
    graphs = [("layered", layered(*size, 0)) for size in LAYERED if size[0] <= most]
    graphs += [("training", training(layers, 0)) for layers in TRAINING if 2 * layers <= most]
    graphs += [("step", with_phases(training(layers, 0))) for layers in STEPS if 2 * layers <= most]
    table = [row for kind, graph in graphs for row in rows(kind, graph, time_limit)]
    small = [row for made in small_graphs(most_small) for row in beside_optimum(*made)]
    output.write_csv(table, out / "any_graph.csv")
    output.write_csv(small, out / "any_graph_optimum.csv")
    write_text(text_of(table, small), out / "any_graph.md")
    output.show(out / "any_graph.md")


if __name__ == "__main__":
    main()
