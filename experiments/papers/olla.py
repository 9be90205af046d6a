"""OLLA (Steiner et al. 2022, arXiv 2210.12924): order and place of a step's tensors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stowplan.insight.pool_models import POOL_MODELS, replay, requests
from stowplan.packing import lower_bound
from stowplan.papers.olla.joint import blocks_of, order_and_place
from stowplan.scheduling import read_graph

from .table import Table

GRAPHS = Path(__file__).resolve().parents[2] / "tests" / "data" / "graphs"
PUBLISHED = {1: ("22.5 %", "7.9 %", "30.4 %"), 32: ("10.1 %", "26.1 %", "36.1 %")}
"""By batch: the mean saving by order, the mean fragmentation of PyTorch's allocator, and the mean saving in all."""


def tables(quick: bool) -> Iterator[Table]:
    """Return the networks' figures, and their means."""
    files = sorted(GRAPHS.glob("*_train.json.gz"))
    measured = [measure(file) for file in (files[::4] if quick else files)]
    rows = [
        [
            found["name"],
            f"{found['operators']:,}",
            *(f"{found[key]:.1%}" for key in ("order", "theirs", "ours", "total")),
            f"{found['seconds']:.2f}",
        ]
        for found in measured
    ]
    columns = ("training step", "operators", *HEADINGS, "CPU s")
    yield Table("Order, fragmentation and both (figures 7, 8, 9 and 13)", columns, rows, NOTE)
    rows = []
    for batch, printed in PUBLISHED.items():
        mine = [found for found in measured if found["name"].endswith(f"_b{batch}")]
        if mine:
            order, theirs, ours, total = (
                f"{statistics.fmean(found[key] for found in mine):.1%}"
                for key in ("order", "theirs", "ours", "total")
            )
            rows.append(
                [
                    str(batch),
                    str(len(mine)),
                    f"{order} ({printed[0]})",
                    f"{theirs} ({printed[1]})",
                    ours,
                    f"{total} ({printed[2]})",
                ]
            )
    yield Table(
        "Means by batch, OLLA's of its own networks in brackets", ("batch", "networks", *HEADINGS), rows
    )


HEADINGS = ("less by order", "fragmentation, PyTorch's", "fragmentation, ours", "less in all")
NOTE = (
    "*Less by order*: of the live peak, with the resident tensors. *Fragmentation* is OLLA's, (reserved - needed) / "
    "reserved, of a model of PyTorch's caching allocator in the recorded order, and of our arena. *Less in all*: of "
    "what that allocator reserves and the resident tensors. Seconds are to order and to place."
)


def measure(file: Path) -> dict[str, Any]:
    """Order and place one step."""
    graph = read_graph(file)
    began = time.process_time()
    found = order_and_place(graph, alignment=64)
    seconds = time.process_time() - began
    recorded = blocks_of(graph, np.arange(len(graph))).problem
    reserved = replay(requests(recorded), POOL_MODELS["pytorch"]()).reserved_peak
    live, resident = lower_bound(recorded), graph.resident_bytes
    return {
        "name": file.name.removesuffix("_train.json.gz"),
        "operators": len(graph),
        "order": 1 - (found.peak + resident) / (live + resident),
        "theirs": 1 - live / reserved,
        "ours": 1 - found.peak / found.arena,
        "total": 1 - (found.arena + resident) / (reserved + resident),
        "seconds": seconds,
    }
