"""Output that the commands share: tables, figures for ``--json``, one line of progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..units import human_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from ..comparison import Comparison
    from ..packing import Progress
    from ..planning import Plan


def table(title: str, *columns: str, left: tuple[str, ...] = ()) -> Table:
    """Return an empty table. The first column and those named in ``left`` are text, the others numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    empty = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        text = number == 0 or column in left
        empty.add_column(column, justify="left" if text else "right", no_wrap=not text)
    return empty


def size(count: int) -> tuple[str, str]:
    """Return bytes in two cells: exact, and in a unit."""
    return f"{count:,}", human_bytes(count)


def show(*parts: object) -> None:
    """Print tables and lines to standard output."""
    from rich.console import Console

    console = Console()
    for part in parts:
        console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))


def memory_table(found: Comparison) -> Table:
    """Return a table of what the step needs, and of what stowplan and the pools reserve for it."""
    plan = found.plan
    rows = table("Memory of the step", "", "bytes", "", "/ planned", "plan saves")

    def ratio(count: int) -> str:
        return f"{count / found.planned_peak:.3f}" if found.planned_peak else ""

    rows.add_row("planned peak", *size(found.planned_peak), ratio(found.planned_peak), "")
    bound = plan.placement.lower_bound
    unit = int(plan.problem.alignment.max(initial=1))
    rows.add_row(f"lower bound (units of {unit})", *size(bound), ratio(bound), "")
    rows.add_row("stowplan's arena", *size(plan.arena_bytes), ratio(plan.arena_bytes), "")
    rows.add_section()
    for name, title, use in found.titled():
        cells = size(use.reserved_peak)
        rows.add_row(title, *cells, ratio(use.reserved_peak), f"{round(found.saved(name), 3) + 0.0:.1%}")
    return rows


def memory_figures(found: Comparison) -> dict[str, Any]:
    """Return the content of `memory_table` for ``--json``."""
    plan = found.plan
    return {
        "blocks": len(plan.rows),
        "left_out": len(plan.profile) - len(plan.rows),
        "planned_peak": found.planned_peak,
        "lower_bound": plan.placement.lower_bound,
        "arena": plan.arena_bytes,
        "optimal": plan.placement.optimal,
        "solver": plan.placement.solver,
        "pools": {
            name: {
                "title": title,
                "reserved": use.reserved_peak,
                "saved": found.saved(name),
                "steps": use.steps,
                "steady": use.steady,
            }
            for name, title, use in found.titled()
        },
    }


def counts(plan: Plan) -> str:
    """Return a sentence with the number of blocks of each kind."""
    profile = plan.profile
    left_out = len(profile) - len(plan.rows)
    kinds = [f"{int(profile.wrapped.sum()):,} wrapped", f"{int(profile.escaped.sum()):,} escaped"]
    rest = f"; {left_out:,} of them not planned" if left_out else ""
    return f"{len(profile):,} blocks in a step ({', '.join(kinds)}){rest}"


@contextlib.contextmanager
def packing_status(*, enabled: bool) -> Iterator[Callable[[Progress], object] | None]:
    """Show the best peak so far, if standard error is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield None
        return
    with console.status("packing", spinner="line") as status:

        def heard(progress: Progress) -> None:
            above = progress.peak / progress.lower_bound - 1 if progress.lower_bound else 0.0
            status.update(
                f"{progress.solver}: peak {progress.peak}, {above:.2%} above the lower bound, {progress.seconds:.1f} s"
            )

        yield heard
