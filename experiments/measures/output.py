"""Write rows as tables (CSV and Markdown) and pictures (PNG)."""

from __future__ import annotations

import csv
import io
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from stowplan import __version__
from stowplan.common.files import atomic_write

from .kept import Row, write_text

ROOT = Path(__file__).resolve().parents[2]
INK, GRID = "#1b2a34", "#dfe5e8"
TINTS = ("#1f5f7a", "#4593a8", "#d98e2b", "#efbd74", "#8a6fa8", "#b7b7b7", "#c8402f")


class Column(NamedTuple):
    """A column of the Markdown table: its heading, a row's key or what a row gives, and how that is written."""

    heading: str
    key: str | Callable[[Row], Any]
    write: Callable[[Any], str] = str


def above(share: float) -> str:
    """Write a share above a bound: 0 if the bound is met to the byte."""
    return f"{share:.2%}" if share else "0"


def mib(count: float) -> str:
    """Write bytes in MiB."""
    return f"{count / 2**20:,.1f}"


def percent(share: float, digits: int = 1) -> str:
    """Write a share with its sign."""
    return f"{share:+.{digits}%}".replace("-", "\N{MINUS SIGN}")


def seconds(value: float) -> str:
    """Write seconds with three digits."""
    return f"{value:.3g}"


def milliseconds(value: float) -> str:
    """Write seconds as milliseconds."""
    return f"{1e3 * value:,.2f}"


out = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / "build" / "experiments",
    help="Folder for cells, tables and pictures.  [default: build/experiments]",
)
"""The option of a command that writes files."""


def chosen(option: str, to: str, names: Iterable[str]) -> Callable[[Any], Any]:
    """Return an option, passed as `to`, that chooses some of these names."""
    choice = click.Choice([*names])
    return click.option(option, to, multiple=True, type=choice, help="Only this one; repeatable.")


def write_table(
    rows: Sequence[Row],
    columns: Sequence[Column],
    path: Path,
    title: str,
    note: str = "",
    packages: Sequence[str] = ("Chainer",),
) -> None:
    """Write all of the rows as ``path.csv``, and the columns as ``path.md``; each file atomically.

    A row with a ``note`` could not be run; the table shows the note in its last column. A device on which no row could
    be run gets one line instead of a table; rows without one have no heading. The versions of `packages` stand above.
    """
    lines = [f"# {title}", "", made_by(packages), "", *([note, ""] if note else [])]
    for device in dict.fromkeys(row.get("device") for row in rows):
        mine = [row for row in rows if row.get("device") == device]
        lines += [f"## {device.upper()}", ""] if device else []
        notes = {row.get("note") for row in mine}
        if len(notes) == 1 and None not in notes:
            lines += [f"{notes.pop()}: the same command fills this table where there is one.", ""]
        else:
            lines += [*markdown(mine, columns), ""]
    write_csv(rows, path.with_suffix(".csv"))
    write_text("\n".join(lines), path.with_suffix(".md"))


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write all keys of all rows, atomically."""
    text = io.StringIO()
    keys = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(text.getvalue(), path)


def fail(lines: Iterable[str]) -> None:
    """Print what is wrong on standard error, and exit with 1, if there is anything."""
    said = [f"{line}\n" for line in lines]
    sys.stderr.writelines(said)
    if said:
        sys.exit(1)


def show(path: Path) -> None:
    """Print a table that has been written."""
    Console().print(Markdown(path.with_suffix(".md").read_text(encoding="utf-8")))


def markdown(rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """Return the lines of a table."""
    lines = ["| " + " | ".join(column.heading for column in columns) + " |", "|---" * len(columns) + "|"]
    return lines + ["| " + " | ".join(_cells(row, columns)) + " |" for row in rows]


def _cells(row: Row, columns: Sequence[Column]) -> list[str]:
    found = [column.key(row) if callable(column.key) else row.get(column.key) for column in columns]
    cells = ["" if one is None else column.write(one) for one, column in zip(found, columns, strict=True)]
    return [*cells[:-1], row["note"]] if "note" in row else cells


def made_by(packages: Sequence[str] = ("Chainer",)) -> str:
    """Return a line that names the command, the date, the machine and the versions, those of `packages` too."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = spec.name.removesuffix(".__main__") if spec is not None else "experiments"
    command = " ".join(["python -m", module, *sys.argv[1:]])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = [f"stowplan {__version__}", *map(_with_version, packages), f"NumPy {np.__version__}"]
    return (
        f"`{command}`, {date.today().isoformat()}, on {cores} cores ({platform.machine()}); "
        f"{', '.join(versions)}, Python {platform.python_version()}."
    )


def _with_version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"without {package}"


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def grid(count: int, height: float) -> tuple[Any, list[Any]]:
    """Return a figure of rows of four panels, and so many of these."""
    lines = max(-(-count // 4), 1)
    figure = new_figure(14.4, height * lines)
    panels = list(figure.subplots(lines, 4, squeeze=False).flat)
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels[:count]


def tidy(axes: Any, title: str, label: str) -> None:
    """Give axes the look of all pictures."""
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.set_ylabel(label, color=INK)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.tick_params(colors=INK, length=3, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Any, path: Path) -> None:
    """Write a picture as ``path.png``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path.with_suffix(".png")) as file:
        figure.savefig(file, format="png")
