"""``stowplan compare``: what other pools would reserve for a profile."""

from __future__ import annotations

import json
from pathlib import Path

import click

from . import _look
from ._options import planning_options, profile_argument


@click.command(
    short_help="Compare what memory pools would reserve for a step.",
    epilog="Example: stowplan compare step.profile",
)
@profile_argument
@planning_options
def compare(
    profile: Path, alignment: int | None, solver: str, time_limit: float | None, threads: int, as_json: bool
) -> None:
    """Compare what pools would reserve for the step of PROFILE with stowplan's plan.

    PROFILE is any file that stowplan convert reads. The pools are models of CuPy's, PyTorch's (with and without
    expandable segments), RMM's and Chainer 1's, and of none at all; each replays the step until it stops growing. For a
    profile of NumPy's they are hypothetical, and the C library's malloc is measured. What the plan saves is a share of
    the program's memory: older and escaped blocks, and what the pool reserves.
    """
    from ...insight.comparison import compare as run
    from ...profiler import formats

    step = formats.read(profile)
    with _look.status("packing", _look.packing_line, enabled=not as_json) as progress:
        found = run(
            step,
            alignment=alignment,
            solver=solver,
            time_limit=time_limit,
            threads=threads,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps({"profile": str(profile), **_look.memory_figures(found)}))
        return
    lines = [f"{profile}: {_look.counts(found.plan)}", *_look.program_lines(step)]
    _look.show(*lines, "", _look.memory_table(found), _look.WORDS)
