"""``stowplan diff``: which lines of a program take more memory than those of another run of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...common.units import counted, human_bytes
from . import _look
from ._reporter import Answer, reporter

if TYPE_CHECKING:
    from ...insight.differences import Difference


@reporter("Show which call sites hold more memory in another run.", "diff before.profile after.profile")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(min=1), default=20, help="Rows of the table.")
def diff(before: Path, after: Path, top: int) -> Answer:
    """Show which call sites hold more memory in AFTER than in BEFORE, two profiles of one program.

    The table compares what each call site holds at the peak live memory of the whole run, inside a step or not; for a
    file that stowplan profile did not write, at the peak of its step. Moved lines are matched by file and function.
    Exit status 1 if a call site differs.
    """
    from ...insight.differences import differences, holders
    from ...profiler import formats

    profiles = [formats.read(path) for path in (before, after)]
    found = differences(*profiles)
    peaks = [sum(holder.bytes for holder in holders(profile)) for profile in profiles]
    differing = [difference for difference in found if difference.more]
    rows = [difference._asdict() for difference in found]
    figures = {"before": str(before), "after": str(after), "live_peak": peaks, "sites": rows}
    return Answer(figures, _parts(before, after, peaks, differing, top), bad=bool(differing))


def _parts(
    before: Path, after: Path, peaks: list[int], differing: list[Difference], top: int
) -> Iterator[object]:
    more = f"{_signed(peaks[1] - peaks[0])} at the fullest moment"
    yield f"{before}: {human_bytes(peaks[0])}; {after}: {human_bytes(peaks[1])}; {more}"
    rows = _look.table("", "call site", "blocks before", "after", "size before", "after", "more")
    for difference in differing[:top]:
        counts = (f"{difference.blocks_before:,}", f"{difference.blocks_after:,}")
        sizes = (human_bytes(difference.before), human_bytes(difference.after))
        name = _look.site_on_lines(difference.site or "unknown")
        rows.add_row(name, *counts, *sizes, _signed(difference.more))
    yield rows if differing else "no call site differs"
    if rest := differing[top:]:
        yield f"{counted(len(rest), 'other call site')}: {_signed(sum(difference.more for difference in rest))}"


def _signed(count: int) -> str:
    """Return bytes with their sign."""
    return f"{'+' if count >= 0 else '-'} {human_bytes(abs(count))}"
