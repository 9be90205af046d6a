"""``stowplan show``: summarize a profile in the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from . import _look
from ._options import planning_options, profile_argument

if TYPE_CHECKING:
    from ...insight.comparison import Peak
    from ...profiler import Profile


class _Group(NamedTuple):
    """Blocks alive at the peak that have the same call site, or size."""

    name: str
    blocks: int
    bytes: int


@click.command(
    short_help="Show what holds a step's peak.", epilog="Example: stowplan show step.profile --top 20"
)
@profile_argument
@click.option(
    "--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows of the table of the peak."
)
@planning_options
def show(
    profile: Path,
    top: int,
    alignment: int | None,
    solver: str,
    time_limit: float | None,
    threads: int,
    as_json: bool,
) -> None:
    """Summarize PROFILE: what held the program's live peak, and what plan and pools would reserve for its step.

    PROFILE is any file that stowplan convert reads. One that stowplan profile wrote says which call sites held the most
    that the program had alive in the whole run. Blocks alive at the peak are listed by call site, or by size if the
    profile has no call sites.
    """
    from ...insight.comparison import compare, peak_of
    from ...profiler import formats

    step = formats.read(profile)
    with _look.status("packing", _look.packing_line, enabled=not as_json) as progress:
        found = compare(
            step,
            alignment=alignment,
            solver=solver,
            time_limit=time_limit,
            threads=threads,
            progress=progress,
        )
    peak = peak_of(found.plan)
    by = "site" if step.sites else "size"
    groups = sorted(_groups(step, peak), key=lambda group: (-group.bytes, group.name))
    if as_json:
        at_peak: dict[str, Any] = {
            "tick": peak.tick,
            "blocks": len(peak.rows),
            "by": by,
            "groups": [group._asdict() for group in groups],
        }
        figures = {"profile": str(profile), **_look.memory_figures(found)}
        click.echo(json.dumps({**figures, "period": step.period, "at_peak": at_peak}))
        return

    when = f"Planned peak (tick {peak.tick:,} of {step.period:,}): {len(peak.rows):,} blocks"
    rows = _look.table(when, {"site": "call site", "size": "block of"}[by], "blocks", "bytes", "", "share")
    rest = groups[top:]
    shown = [*groups[:top]]
    if rest:
        shown.append(_Group(f"{len(rest):,} others", sum(g.blocks for g in rest), sum(g.bytes for g in rest)))
    for group in shown:
        share = group.bytes / found.planned_peak if found.planned_peak else 0.0
        rows.add_row(
            _look.site_on_lines(group.name), f"{group.blocks:,}", *_look.size(group.bytes), f"{share:.1%}"
        )
    lines = [f"{profile}: {_look.counts(found.plan)}", *_look.program_lines(step)]
    holders = (
        []
        if step.program is None or not step.program.holders
        else [_look.holders_table(step.program, top), ""]
    )
    _look.show(*holders, *lines, "", _look.memory_table(found), "", rows, _look.WORDS)


def _groups(step: Profile, peak: Peak) -> Iterator[_Group]:
    """Yield the blocks by call site, or by size if there are no call sites."""
    import numpy as np

    sizes = step.size[peak.rows]
    key = step.site[peak.rows] if step.sites else sizes
    for value in np.unique(key).tolist():
        of = key == value
        name = f"{value:,} bytes" if not step.sites else step.sites[value] if value >= 0 else "unknown"
        yield _Group(name, int(of.sum()), int(sizes[of].sum()))
