"""What the computations' rows are shown in, and the bounds that they should keep."""

from __future__ import annotations

from collections.abc import Sequence

from ..measures import contest, output
from ..measures.contest import OURS, with_errors
from ..measures.kept import Row
from .measure import PLAIN

__all__ = ["columns", "verdicts", "with_errors"]

REPLAYED, FAULTS, CPU = 0.90, 1 / 3, 1.00
"""At least so much of what tasks make and free again comes from plans; at most so much of plain Dask's page faults and
CPU time."""

NOTE = (
    "Two processes with two threads each. Medians over rounds of the ratio to plain Dask in the same round, after the "
    "warm-up; the standard error of the CPU time's ratio stands behind it. *Replayed*: of the requests of planned "
    "sizes that tasks make and free again. *Results*: share of the tasks' requests that outlive the task, which no "
    "plan has a place for. *Received*: requests outside of tasks, for each in one."
)


def columns(rows: Sequence[Row]) -> list[output.Column]:
    """Columns of the Markdown table."""
    column = output.Column
    others = contest.others_in(rows)
    return [
        column("computation", "title"),
        column("rounds", "rounds"),
        column("plain: CPU s", f"seconds_{PLAIN}", output.seconds),
        *contest.cpu_columns(others),
        *(column(f"{name}: faults", f"count_{name}", "{:,.0f}".format) for name in (PLAIN, *others)),
        column("plain: RSS MiB", f"bytes_{PLAIN}", output.mib),
        *(column(f"{name}: RSS", f"rss_{name}", "{:.2f}".format) for name in others),
        column("replayed", "replayed", "{:.1%}".format),
        column("results", "results", "{:.1%}".format),
        column("received", "received", "{:.2f}".format),
        column("same results", "identical", lambda same: "yes" if same else "NO"),
    ]


def verdicts(row: Row) -> list[str]:
    """Return a line for each bound: what was found, and whether that keeps it."""
    found = [
        ("replayed", row["replayed"], ">=", REPLAYED),
        ("page faults over plain Dask's", row[f"faults_{OURS}"], "<=", FAULTS),
        ("CPU time over plain Dask's", row[f"cpu_{OURS}"], "<=", CPU),
    ]
    lines = [f"results the same: {'yes' if row['identical'] else 'NO'}"]
    for what, value, relation, bound in found:
        kept = value >= bound if relation == ">=" else value <= bound
        lines.append(f"{what}: {value:.3f}, expected {relation} {bound:.2f}: {'yes' if kept else 'NO'}")
    return lines
