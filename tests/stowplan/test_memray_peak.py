"""What holds a program's peak, beside memray's answer: its table (the line that asked) and its tree (the calls to it).

Both are made of the allocations that memray has at its high watermark: those of the C library's heap, without
OpenBLAS's buffers, and without the arenas of Python's objects, which are mapped. What memray has more is what NumPy's
loops take from the C library for themselves, a buffer of 8,192 elements for an operand that they cast, and Python's
large objects.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stowplan import Profile
from stowplan.profiler.program import Program
from stowplan.profiler.recorders.call_sites import call_sites

from ..children import printed
from .named_loops import ONE_PEAK, command

memray = pytest.importorskip("memray", reason="memray is not installed: pip install 'stowplan[test]'")

STACKS = 3
NOTABLE = 0.05
"""Share of the peak that a place holds: the smaller ones are not compared."""

BUFFER = 8_192 * 8 + 1_024
OPENBLAS = 32 << 20


def memrays(file: Path) -> tuple[Counter[str], Counter[str]]:
    """Return bytes by line, and by stack as a call site names it, at memray's high watermark."""
    is_users = call_sites().is_users
    table: Counter[str] = Counter()
    tree: Counter[str] = Counter()
    for record in memray.FileReader(file).get_high_watermark_allocation_records(merge_threads=True):
        if record.allocator == memray.AllocatorType.MMAP or record.size >= OPENBLAS:
            continue
        others: list[str] = []
        for function, path, line in record.stack_trace():
            code = compile("", path, "exec")
            if is_users(code):
                site = f"{path}:{line} {function}"
                table[others[0] if others else site] += record.size
                tree[" > ".join([site, *reversed(others[:STACKS])])] += record.size
                break
            others.append(f"{'/'.join(path.split('/')[-3:])}:{line} {function}")
    return table, tree


def ours(program: Program) -> tuple[Counter[str], Counter[str]]:
    """Return the same of stowplan's."""
    table: Counter[str] = Counter()
    tree: Counter[str] = Counter()
    for holder in program.holders:
        table[holder.site.rpartition(" > ")[2]] += holder.bytes
        tree[holder.site] += holder.bytes
    return table, tree


def side_by_side(mine: Counter[str], other: Counter[str]) -> str:
    """Return a table of both."""
    rows = [f"{mine[place]:12,} {other[place]:12,}  {place}" for place, _ in mine.most_common()]
    return "\n".join([f"{'stowplan':>12} {'memray':>12}", *rows])


@pytest.mark.parametrize(
    "name", [*ONE_PEAK[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in ONE_PEAK[2:])]
)
def test_peak_is_held_by_what_memray_says(name: str, tmp_path: Path) -> None:
    printed("-m", "memray", "run", "-q", "-o", "memray.bin", *command(name), folder=tmp_path)
    options = ("--small", "0", "-o", "step.profile")
    printed("-m", "stowplan", "profile", *options, *command(name), folder=tmp_path)
    found = Profile.load(tmp_path / "step.profile").program
    assert found is not None
    for mine, other in zip(ours(found), memrays(tmp_path / "memray.bin"), strict=True):
        both = side_by_side(mine, other)
        print(both)
        assert sum(mine.values()) == found.live_peak
        for place, held in mine.items():
            if held >= NOTABLE * found.live_peak:
                near = 0.01 * found.live_peak
                assert -near <= other[place] - held <= near + BUFFER, both
