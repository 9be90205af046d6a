"""google/minimalloc's CSV as a profile: see `Profile.from_csv` and `Profile.to_csv`; the format: `common.minimalloc`.

The file has lifetimes on a line, a profile those on a circle: a wrapped block is alive from end to end, with one gap.
"""

from __future__ import annotations

import os

import numpy as np

from ...common import minimalloc
from ...common.errors import FormatError
from ..profile import Profile
from .registry import Format, register
from .text import first_line


def write(path: str | os.PathLike[str], profile: Profile) -> None:
    """Write the planned blocks of a profile: see `Profile.to_csv`."""
    rows = np.flatnonzero(profile.planned)
    start, end, gaps = profile.on_line(rows)
    table = minimalloc.Table(
        id=tuple(map(str, rows.tolist())),
        lower=start,
        upper=end,
        size=profile.size[rows],
        alignment=np.ones(len(rows), dtype=np.int64),
        hint=np.full(len(rows), -1, dtype=np.int64),
        gaps=np.pad(gaps, ((0, 0), (0, 2))),
        offset=None,
    )
    minimalloc.write(path, table)


def read(path: str | os.PathLike[str]) -> Profile:
    """Read the blocks as the profile of a step: see `Profile.from_csv`."""
    table = minimalloc.read(path)
    n = len(table.size)
    if n == 0:
        return Profile(table.size, table.lower, table.upper)
    start, end, wraps = table.lower.copy(), table.upper.copy(), np.zeros(n, dtype=bool)
    whole = table.lower.min(), table.upper.max()
    for row, gap_start, gap_end, *window in table.gaps.tolist():
        is_whole = (
            (table.lower[row], table.upper[row]) == whole and whole[0] < gap_start and gap_end < whole[1]
        )
        if wraps[row] or not is_whole or any(window):
            why = "a profile holds one gap, in a block alive from end to end"
            raise FormatError(path, f"block {table.id[row]!r}: {why}")
        start[row], end[row], wraps[row] = gap_end, gap_start, True
    when = np.concatenate([end, start])
    is_start = np.repeat([0, 1], n)
    order = np.lexsort((np.concatenate([np.arange(n)] * 2), is_start, when))
    tick = np.argsort(order)
    new_start, new_end = tick[n:], tick[:n] + np.where(wraps, 2 * n, 0)
    by_start = np.argsort(new_start)
    return Profile(table.size[by_start], new_start[by_start], new_end[by_start], period=2 * n)


def _recognizes(head: bytes) -> bool:
    return any(cell.strip(' "') in minimalloc.SPELLINGS for cell in first_line(head).split(","))


register(
    Format(
        "minimalloc",
        "a problem in google/minimalloc's CSV",
        suffixes=(".csv",),
        recognizes=_recognizes,
        read=lambda path, device: read(path),
        write=lambda path, profile, offsets: write(path, profile),
    )
)
