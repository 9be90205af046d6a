"""What the computations' rows are shown in."""

from __future__ import annotations

from collections.abc import Sequence

from ..measures import contest, output
from ..measures.kept import Row
from .measure import PLAIN

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
