"""The order of operators on step graphs: ``python -m experiments.order GRAPHS...``, files that `stowplan order` reads.

For each graph the live peak in the order recorded, by a greedy list schedule, and by stowplan's ``auto``; the lower
bound, whether the two meet, and the median seconds of `REPEAT` calls. Bytes are without the resident tensors.

Below the table, for training graphs whose names end in ``_b<batch>_train``, stands the mean share of the peak that is
saved, beside OLLA's (Steiner et al. 2022, section 6: 22.5 % at batch 1, 10.1 % at batch 32). OLLA includes the resident
tensors, so the mean is given with them, too; OLLA's networks are others.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path

import click

from stowplan.scheduling import Phase, StepGraph, read_graph
from stowplan.scheduling.ordering import order

from .measures import output
from .measures.kept import Row

REPEAT = 3
OLLA = {"1": 0.225, "32": 0.101}


def measure(name: str, graph: StepGraph) -> Row:
    """Find a graph's row: bytes, and seconds."""
    greedy = order(graph, "greedy")
    found = [order(graph, time_limit=10.0) for _ in range(REPEAT)]
    best = min(found, key=lambda solution: solution.peak)
    return {
        "graph": name,
        "operators": len(graph),
        "before": best.before,
        "greedy": greedy.peak,
        "peak": best.peak,
        "lower_bound": max(solution.lower_bound for solution in found),
        "optimal": any(solution.optimal for solution in found),
        "solver": best.solver,
        "seconds": round(statistics.median(solution.seconds for solution in found), 4),
        "training": bool((graph.phase == Phase.BACKWARD).any()),
        "resident": graph.resident_bytes,
    }


def saved(row: Row, to: str, resident: bool) -> float:
    """Return the share of the recorded order's peak that another saves, with the resident tensors counted in or not."""
    more = row["resident"] if resident else 0
    return 1 - (row[to] + more) / (row["before"] + more) if row["before"] + more else 0.0


def _proved(row: Row) -> str:
    gap = row["peak"] / row["lower_bound"] - 1 if row["lower_bound"] else 0.0
    return "yes" if row["optimal"] else f"within {gap:.3%}"


COLUMNS = (
    output.Column("graph", "graph"),
    output.Column("operators", "operators", "{:,}".format),
    output.Column("recorded", "before", "{:,}".format),
    output.Column("greedy", "greedy", "{:,}".format),
    output.Column("found", "peak", "{:,}".format),
    output.Column("less", lambda row: saved(row, "peak", False), "{:.1%}".format),
    output.Column("lower bound", "lower_bound", "{:,}".format),
    output.Column("proved", _proved),
    output.Column("seconds", "seconds", "{:.3f}".format),
)


def summary(rows: Sequence[Row]) -> str:
    """Return what is said above the table: what is proved, seconds, and means of training graphs by batch size."""
    seconds = [row["seconds"] for row in rows]
    said = (
        f"Medians of {REPEAT} calls. {sum(row['optimal'] for row in rows)} of {len(rows)} proved; seconds: median "
        f"{statistics.median(seconds):.3f}, most {max(seconds):.3f}."
    )
    for batch, theirs in OLLA.items():
        mine = [row for row in rows if row["training"] and re.search(rf"_b{batch}_train$", row["graph"])]
        if mine:
            ours, greedy, ours_in_all, greedy_in_all = (
                f"{statistics.fmean(saved(row, to, resident) for row in mine):.1%}"
                for resident in (False, True)
                for to in ("peak", "greedy")
            )
            said += (
                f" {len(mine)} training graphs of batch {batch} save {ours} of the peak in the mean (greedy {greedy}), "
                f"with the resident tensors counted in {ours_in_all} ({greedy_in_all}); OLLA's 18 save {theirs:.1%}."
            )
    return said


@click.command()
@click.argument(
    "graphs", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@output.out
def main(graphs: tuple[Path, ...], out: Path) -> None:
    """Order the operators of GRAPHS and write a table."""
    rows = [measure(path.name.split(".")[0], read_graph(path)) for path in graphs]
    output.write_table(rows, COLUMNS, out / "order", "Order of operators", summary(rows), ())
    output.show(out / "order")


if __name__ == "__main__":
    main()
