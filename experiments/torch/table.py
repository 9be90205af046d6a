"""What the rows are shown in."""

from __future__ import annotations

from collections.abc import Sequence

from ..measures import contest, output
from ..measures.contest import OTHERS, OURS
from ..measures.kept import Row
from .measure import AUTO, GLIBC

NOTE = (
    "*stowplan*: `TorchPool` with marked steps; *auto_step*: the same without marks. CPU time over glibc's, medians "
    "over rounds of the medians over turns; the standard error over rounds stands behind it. Faults: minor page faults "
    "of a step. RSS: the largest resident set in the measured turns. *Replayed*: of the requests of 16 KiB and more."
)


def columns(rows: Sequence[Row]) -> list[output.Column]:
    """Columns of the Markdown table."""
    column = output.Column
    others = contest.others_in(rows, (OURS, AUTO, *OTHERS))
    return [
        column("network", "title"),
        column("phase", "phase"),
        column("threads", "threads"),
        column("rounds", "rounds"),
        column("glibc: CPU ms", f"seconds_{GLIBC}", output.milliseconds),
        *contest.cpu_columns(others),
        *(column(f"{name}: faults", f"count_{name}", "{:,.0f}".format) for name in (GLIBC, *others)),
        *(column(f"{name}: RSS MiB", f"bytes_{name}", output.mib) for name in (GLIBC, *others)),
        column("replayed", f"replayed_{OURS}", "{:.2%}".format),
        column("auto_step: replayed", f"replayed_{AUTO}", "{:.2%}".format),
        column("arena MiB", f"arena_{OURS}", output.mib),
        column("above its bound", f"fragmentation_{OURS}", output.above),
        column("same results", "identical", lambda same: "yes" if same else "NO"),
        column("", "note"),
    ]
