"""What commands on step graphs share: reading graphs, counting what a schedule does with values, lines of progress."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import FormatError
from ...common.units import human_bytes

if TYPE_CHECKING:
    from ...scheduling import Schedule, StepGraph
    from ...scheduling.solve import SchedulingProgress, Solution

BYTES_A_SECOND = 10e9
"""Assumed speed of operators if a graph has no seconds: they read and write their values at this rate."""

_PROFILE = "profile"  # `Profile.save`
_GZIP, _ZIP = b"\x1f\x8b", b"PK"


def is_graph(path: Path) -> bool:
    """Whether a file is a step graph, by its content; False for damaged and foreign files.

    Raises
    ------
    OSError
        The file cannot be opened.
    """
    from ...scheduling.formats import FORMAT
    from ...scheduling.graph import KIND

    return _kind(path) in (FORMAT, KIND)


def read_graph(path: Path, dimensions: Mapping[str, int] | None = None) -> StepGraph:
    """Read a step graph; dimensions are an ONNX file's.

    Raises
    ------
    FormatError
        The file is no step graph. If it is a profile, the message tells how to record a graph.
    OSError
        The file cannot be opened.
    """
    from ...scheduling.formats import read_graph as read

    if _kind(path) == _PROFILE:
        raise FormatError(
            path,
            "a profile, which has blocks and no operators; expected a step graph: record one with "
            "stowplan profile --graph step.graph SCRIPT",
        )
    return read(path, dimensions)


def _kind(path: Path) -> str | None:
    """Return the format that a file names itself; None if it names none."""
    import numpy as np

    content = path.read_bytes()
    try:
        if content.startswith(_ZIP):
            with np.load(path, allow_pickle=False) as archive:
                data = json.loads(bytes(archive["header"]).decode())
        else:
            data = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
        return str(data["format"])
    except Exception:  # what json, zlib, zipfile and NumPy raise for a damaged file, RuntimeError among them
        return None


def with_seconds(graph: StepGraph) -> tuple[StepGraph, bool]:
    """Return the graph, with assumed seconds if it has none at all; and whether they are assumed."""
    if graph.seconds.any() or not len(graph):
        return graph, False
    size = graph.size[graph.storage].tolist()
    moved = [
        sum(size[v] for v in {*reads, *writes})
        for reads, writes in zip(graph.reads.rows(), graph.writes.rows(), strict=True)
    ]
    return graph.with_seconds([count / BYTES_A_SECOND for count in moved]), any(moved)


def treated(graph: StepGraph, schedule: Schedule) -> dict[str, list[int]]:
    """Return the storages that a schedule drops, packs and swaps, most bytes first, by the value that has each.

    Values that end because no operator of a later phase reads them do not count as dropped.
    """
    import numpy as np

    from ...scheduling import Way, as_recorded

    changed = (schedule.way != as_recorded(graph).way) & (graph.storage == np.arange(graph.values))
    treatment = np.where(schedule.way == Way.ON_DEMAND, Way.SWAPPED, schedule.way)
    found = {}
    for way in (Way.DROPPED, Way.PACKED, Way.SWAPPED):
        values = np.flatnonzero(changed & (treatment == way) & (graph.size > 0))
        found[way.name.lower()] = values[np.argsort(-graph.size[values], kind="stable")].tolist()
    return found


def figures(graph: StepGraph, solution: Solution, lean_peak: int, retained: int) -> dict[str, Any]:
    """Return the figures of a schedule, for ``--json``."""
    step = float(graph.seconds.sum())
    return {
        "budget": solution.peak + retained,
        "peak": solution.peak,
        "of_lean": solution.peak / lean_peak if lean_peak else 1.0,
        "extra_seconds": solution.extra_seconds,
        "extra_share": solution.extra_seconds / step if step else 0.0,
        "solver": solution.solver,
        "optimal": bool(solution.optimal),
        **{
            way: {"values": len(values), "bytes": int(graph.size[values].sum())}
            for way, values in treated(graph, solution.schedule).items()
        },
    }


def scheduling_line(progress: SchedulingProgress) -> str:
    """Describe the best schedule so far."""
    peak = human_bytes(progress.peak)
    return f"{progress.solver}: peak {peak}, {progress.extra_seconds:.3f} s extra, {progress.seconds:.1f} s"
