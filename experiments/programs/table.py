"""What the programs' rows are shown in: two tables and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..measures import contest, output
from ..measures.contest import OTHERS, OURS
from ..measures.kept import Row
from .measure import PLAIN

NOTE = (
    "Medians over rounds of the ratio to plain Python in the same round; the standard error of the CPU time's ratio "
    "stands behind it. *Verdict*: CPU time of `stowplan run` over that of the best of mimalloc, tcmalloc and tuned "
    "glibc. *Heap alone*, *from the plan*: shares of NumPy's requests that the pool's heap served without a search "
    "for steps, and that came from a plan, of those since the first one and of all."
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


def draw(rows: Sequence[Row]) -> Any:
    """Draw CPU time and resident set over plain Python's: a bar for each contestant of each program."""
    found = [row for row in rows if "note" not in row]
    names = contest.others_in(found)
    figure = output.new_figure(10, 0.16 * max(len(found), 1) * (len(names) + 1.5) + 1.2)
    panels = figure.subplots(1, 2, sharey=True)
    titles = {"cpu": "CPU time / plain Python's", "rss": "resident set / plain Python's"}
    height = 0.8 / max(len(names), 1)
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        for number, name in enumerate(names):
            mine = [(i, row) for i, row in enumerate(found) if f"{key}_{name}" in row]
            axes.barh(
                [i - 0.4 + (number + 0.5) * height for i, _ in mine],
                [row[f"{key}_{name}"] for _, row in mine],
                height * 0.9,
                xerr=[row[f"error_{name}"] for _, row in mine] if key == "cpu" else None,
                ecolor=output.INK,
                error_kw={"linewidth": 0.7},
                color=_tint(name),
                label="stowplan run" if name == OURS else name,
            )
        axes.axvline(1, color=output.INK, linewidth=0.8)
        output.tidy(axes, title, "")
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=output.GRID, linewidth=0.6)
        axes.set_yticks(range(len(found)), [row["title"] for row in found])
        axes.set_ylim(len(found) - 0.4, -0.6)
    if names:
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names), fontsize=8
        )
    return figure


def _tint(name: str) -> str:
    return output.TINTS[-1] if name == OURS else output.TINTS[OTHERS.index(name)]
