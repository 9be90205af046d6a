"""What the programs' rows are shown in: two tables."""

from __future__ import annotations

from collections.abc import Sequence

from ..measures import contest, output
from ..measures.kept import Row
from .measure import PLAIN

NOTE = (
    "Medians over rounds of the ratio to plain Python in the same round; the standard error of the CPU time's ratio "
    "stands behind it. *Verdict*: CPU time with stowplan over that of the best of mimalloc, tcmalloc and tuned "
    "glibc. *Heap alone*, *from the plan*: shares of NumPy's (in its table, PyTorch's) requests that the pool's heap "
    "served as no step was marked, and that came from a plan, of those since the first one and of all."
)


def columns(rows: Sequence[Row]) -> list[output.Column]:
    """Columns of the Markdown table."""
    column = output.Column
    names = contest.others_in(rows)
    return [
        column("program", "title"),
        column("rounds", "rounds"),
        column("plain: CPU s", f"seconds_{PLAIN}", output.seconds),
        *contest.cpu_columns(names),
        column("best other", "best"),
        column("verdict", "verdict_with_error"),
        column("plain: RSS MiB", f"bytes_{PLAIN}", output.mib),
        *(column(f"{name}: RSS", f"rss_{name}", "{:.2f}".format) for name in names),
        *(column(f"{name}: faults", f"count_{name}", "{:,.0f}".format) for name in (PLAIN, *names)),
        column("heap alone", "heap_only", "{:.1%}".format),
        column("from the plan", "planned", "{:.1%}".format),
        column("of all", "of_all", "{:.1%}".format),
        column("same output", "identical", lambda same: "yes" if same else "NO"),
        column("", "note"),
    ]
