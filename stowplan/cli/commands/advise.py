"""``stowplan advise``: what a step's peak is made of, and what each remedy leaves of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...common.units import human_bytes
from . import _look
from ._options import time_limit_option_of
from ._reporter import Answer, reporter

if TYPE_CHECKING:
    from ...insight.advice import Remedy

_SECONDS = 10.0
_TELLS = {
    "graph": "what early release, recomputation, offloading and another order save: its step graph, by stowplan "
    "profile --graph of a Chainer training",
    "profile": "what a pool or a plan saves: its profile, by stowplan profile, or an allocation log",
    "batch": "what a smaller batch saves: stowplan fit, with three profiles",
}


@reporter("Show what a step's peak is made of, and what each remedy saves.", "advise step.profile step.graph")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@time_limit_option_of(_SECONDS)
def advise(files: tuple[Path, ...], time_limit: float | None) -> Answer:
    """Show what the peak of a step is made of, and what each remedy saves of it.

    FILES are a profile, or any file that stowplan convert reads, for what pools and a plan save; a step graph of
    stowplan profile --graph for early release, recomputation, offloading and another order; or both. What they cannot
    tell stands below. Bytes are the program's most, with what it retains, as far as the file knows that.
    """
    from ...insight import advice
    from ._graphs import is_graph, read_graph, scheduling_line, with_seconds

    graphs = [path for path in files if is_graph(path)]
    profiles = [path for path in files if path not in graphs]
    if len(graphs) > 1 or len(profiles) > 1:
        raise click.UsageError(
            "several files of a kind; expected one profile, one step graph, or one of each"
        )
    parts: dict[str, dict[str, int]] = {}
    rows: dict[str, list[Remedy]] = {}
    for path in profiles:
        found = _look.compared(path, {"time_limit": time_limit})
        parts["profile"], rows["profile"] = advice.parts_of_profile(found), advice.of_profile(found)
    for path in graphs:
        graph, _ = with_seconds(read_graph(path))
        parts["graph"] = advice.parts_of_graph(graph)
        with _look.status("scheduling", scheduling_line) as progress:
            rows["graph"] = advice.of_graph(graph, {"time_limit": time_limit, "progress": progress})
    missing = [text for kind, text in _TELLS.items() if kind not in rows]
    for path in profiles:
        program = found.plan.profile.program
        missing += _look.refused_lines(program)
        if program is not None and program.is_log:
            missing.append(
                f"with how little each pool would do under a limit: stowplan compare {path} --size"
            )
    if profiles and found.with_plan is None:
        missing.append("what was live before the file begins: pools and a plan are shown without it")
    figures = {
        "files": [str(path) for path in files],
        "parts": parts,
        "remedies": {kind: [dataclasses.asdict(row) for row in some] for kind, some in rows.items()},
        "cannot_be_told": missing,
    }
    return Answer(figures, _tables(parts, rows, missing))


def _tables(
    parts: dict[str, dict[str, int]], rows: dict[str, list[Remedy]], missing: list[str]
) -> Iterator[object]:
    for kind, some in rows.items():
        whole = sum(parts[kind].values())
        made = _look.table(f"Peak, by the {kind}", "made of", "size", "share")
        for name, size in parts[kind].items():
            if size:
                made.add_row(name, human_bytes(size), f"{size / max(whole, 1):.1%}")
        yield made
        base = some[0].size or 1
        title = "Pools and a plan" if kind == "profile" else "Schedules of the step"
        table = _look.table(title, "remedy", "most", "saves", "extra time", "switch on", left=("switch on",))
        for row in some:
            most = "-" if row.size is None else human_bytes(row.size)
            saves = "" if row.size is None or row is some[0] else f"{1 - row.size / base + 0.0:.1%}"
            table.add_row(row.name, most, saves, "" if row.extra is None else f"{row.extra:.1%}", row.how)
        yield table
    yield from (f"cannot be told from here: {text}" for text in missing)
