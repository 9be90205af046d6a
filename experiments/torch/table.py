"""What the rows are shown in, and the bounds that they should keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..measures import contest, output, peers
from ..measures.contest import OURS, with_errors
from ..measures.kept import Row
from .measure import AUTO, GLIBC

__all__ = ["columns", "verdicts", "with_errors"]

OTHERS = (GLIBC, peers.TUNED_GLIBC, *peers.LIBRARIES)
CPU, FAULTS, REPLAYED = 1.00, 0.01, 0.99
"""At most so much of the others' CPU time in the median of the networks, and of glibc's page faults; at least so much
of the requests of planned sizes from plans."""

NOTE = (
    "*stowplan*: `TorchPool` with marked steps; *auto_step*: the same without marks. CPU time over glibc's, medians "
    "over rounds of the medians over turns; the standard error over rounds stands behind it. Faults: minor page faults "
    "of a step. RSS: the largest resident set in the measured turns. *Replayed*: of the requests of 16 KiB and more."
)


def columns(rows: Sequence[Row]) -> list[output.Column]:
    """Columns of the Markdown table."""
    column = output.Column
    others = contest.others_in(rows, (OURS, AUTO, *OTHERS[1:]))
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


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Return a line for each bound: what was found, and whether that keeps it."""
    found = [row for row in rows if "note" not in row]
    lines = []
    for other in OTHERS:
        ratios = [row[f"over_{other}"] for row in found if f"over_{other}" in row]
        if ratios:
            median = float(np.median(ratios))
            lines.append(
                f"CPU time over {other}'s, median of {len(ratios)}: {median:.3f}, expected <= {CPU:.2f}: "
                f"{'yes' if median <= CPU else 'NO'}"
            )
    for row in found:
        faults = row[f"count_{OURS}"] / max(row[f"count_{GLIBC}"], 1)
        replayed = row[f"replayed_{OURS}"]
        lines.append(
            f"{row['title']}, {row['phase']}: page faults over glibc's {faults:.4f} (expected <= {FAULTS}), replayed "
            f"{replayed:.2%} (expected >= {REPLAYED:.0%}), RSS over glibc's "
            f"{row[f'bytes_{OURS}'] / row[f'bytes_{GLIBC}']:.2f}, same results: {'yes' if row['identical'] else 'NO'}"
        )
    return lines
