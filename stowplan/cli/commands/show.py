"""``stowplan show``: summarize a profile in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...common.files import from_here
from ...common.units import counted, human_bytes
from ...profiler.program_summary import Holder
from . import _look
from ._options import planning_options, profile_argument
from ._reporter import Answer, reporter

if TYPE_CHECKING:
    from ...insight.comparison import Comparison, Peak


@reporter("Show what holds a step's peak.", "show step.profile --top 20")
@profile_argument
@click.option("--top", type=click.IntRange(min=1), default=10, help="Rows of the table of the peak.")
@planning_options
def show(profile: Path, top: int, **how: Any) -> Answer:
    """Summarize PROFILE: what holds the peak.

    PROFILE is any file that stowplan convert reads. For one that stowplan profile wrote, the table lists the call sites
    that held the peak live memory of the whole run; for a log of another tool, what held its peak. For others it lists
    the blocks that are live at the planned peak of the step, by call site, or by size. stowplan compare shows what
    pools would reserve.
    """
    from ...insight.comparison import peak_of
    from ...insight.differences import held

    found = _look.compared(profile, {**how, "pools": ()})
    step, peak = found.plan.profile, peak_of(found.plan)
    sites = [holder._replace(site=holder.site or "unknown") for holder in held(step, peak.rows)]
    sites.sort(key=lambda holder: (-holder.bytes, holder.site))
    at_peak = {
        "tick": peak.tick,
        "blocks": len(peak.rows),
        "by": "site" if step.sites else "size",
        "groups": [{"name": holder.site, "blocks": holder.blocks, "bytes": holder.bytes} for holder in sites],
    }
    figures = {**_look.memory_figures(profile, found), "period": step.period, "at_peak": at_peak}
    return Answer(figures, _parts(profile, found, peak, sites, top))


def _parts(profile: Path, found: Comparison, peak: Peak, sites: list[Holder], top: int) -> Iterator[object]:
    from ...insight.differences import at_peak, other_peaks

    step, program = found.plan.profile, found.plan.profile.program
    yield f"{profile}: {_look.counts(found.plan)}; planned peak {human_bytes(found.planned_peak)}"
    yield from (*_look.program_lines(step), "")
    if program is not None and program.holders:
        title = f"Peak of the whole run: {human_bytes(program.live_peak)} live, held by"
        yield _look.held_table(title, "call site", program.holders, program.live_peak, top)
    elif program is not None and program.is_log and step.at_live_peak() is not None:
        title = f"Peak of the log: {human_bytes(program.live_peak)} live, held by"
        column = "call site" if step.sites else "block of"
        yield _look.held_table(title, column, at_peak(step), program.live_peak, top)
    else:
        title = f"Planned peak (tick {peak.tick:,} of {step.period:,}): {counted(len(peak.rows), 'block')}"
        yield _look.held_table(
            title, "call site" if step.sites else "block of", sites, found.planned_peak, top
        )
    for site, size in other_peaks(step)[:3]:
        yield f"as full at another moment: {human_bytes(size)}, when {from_here(site)} allocates"
    yield _look.WORDS
    yield f"Next: stowplan compare {profile}"
