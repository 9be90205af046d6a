"""``stowplan report``: show a profile on an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...common.units import counted, human_bytes
from ._options import OutputFile, alignment_option, profile_argument, solver_option
from ._reporter import Answer, reporter


@reporter("Draw a step's memory as an HTML page.", "report step.profile -o report.html")
@profile_argument
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    default="report.html",
    help="The page (.html).",
)
@click.option("--title", help="First line; else the name of the file.")
@solver_option
@alignment_option
@click.option("--device", type=click.IntRange(min=0), help="Which device, if PROFILE holds several.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def report(
    profile: Path,
    output: Path,
    title: str | None,
    device: int | None,
    opens: bool,
    **how: Any,
) -> Answer:
    """Show the memory of a step: PROFILE is any file that stowplan convert reads.

    The page is one file that needs no network. It shows the plan next to CuPy's pool for the same allocations, live
    bytes, the program's other live memory, the live blocks at a moment, and the call sites with most bytes.
    """
    from ...insight.report import require_bokeh, save_report
    from ...profiler import formats

    if output.suffix.lower() not in (".html", ".htm"):
        raise click.BadParameter(f"{output}: expected the suffix .html", param_hint="--output")
    require_bokeh()
    step = formats.read(profile, device=device)
    plan = save_report(output, step, title=title or profile.name, **how)
    arena, bound = plan.arena_bytes, plan.placement.lower_bound
    figures = {"output": str(output), "blocks": len(plan.rows), "arena": arena, "lower_bound": bound}
    if opens:
        click.launch(str(output))
    blocks = counted(len(plan.rows), "planned block")
    return Answer(figures, [f"wrote {output}: {blocks}, arena {human_bytes(arena)}"])
