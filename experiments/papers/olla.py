"""OLLA (Steiner et al. 2022, arXiv 2210.12924): order and place of a step's tensors."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from stowplan.insight.pool_models import POOL_MODELS, replay, requests
from stowplan.packing import lower_bound
from stowplan.papers.olla.joint import blocks_of, order_and_place
from stowplan.scheduling import StepGraph, read_graph

from ..measures import output
from .table import Table, timed

GRAPHS = output.ROOT / "tests" / "data" / "graphs"
KEYS = ("order", "theirs", "ours", "total")
"""The shares of `measure`, as `HEADINGS` have them."""
PUBLISHED = {1: (" (22.5 %)", " (7.9 %)", "", " (30.4 %)"), 32: (" (10.1 %)", " (26.1 %)", "", " (36.1 %)")}
"""By batch: OLLA's means of these."""


def tables(quick: bool) -> Iterator[Table]:
    """Return the networks' figures, and their means."""
    measured = [measure(name, graph) for name, graph in _steps(quick)]
    rows = [
        [
            found["name"],
            f"{found['operators']:,}",
            *(f"{found[key]:.1%}" for key in KEYS),
            "yes" if found["optimal"] else "no",
            f"{found['seconds']:.2f}",
        ]
        for found in measured
    ]
    columns = ("training step", "operators", *HEADINGS, "proved", "CPU s")
    yield Table("Order, fragmentation and both (figures 7, 8, 9 and 13)", columns, rows, NOTE)
    rows = []
    for batch, printed in PUBLISHED.items():
        mine = [found for found in measured if found["name"].endswith(f"_b{batch}") and found["name"] != ROAM]
        if mine:
            means = [statistics.fmean(found[key] for found in mine) for key in KEYS]
            cells = [f"{mean:.1%}{theirs}" for mean, theirs in zip(means, printed, strict=True)]
            rows.append([str(batch), str(len(mine)), *cells])
    yield Table(
        "Means by batch, OLLA's of its own networks in brackets", ("batch", "networks", *HEADINGS), rows
    )


HEADINGS = ("less by order", "fragmentation, PyTorch's", "fragmentation, ours", "less in all")
NOTE = (
    "*Less by order*: of the live peak, with the resident tensors. *Fragmentation* is OLLA's, (reserved - needed) / "
    "reserved, of a model of PyTorch's caching allocator in the recorded order, and of our arena. *Less in all*: of "
    "what that allocator reserves and the resident tensors. *Proved*: no order has a smaller arena. Seconds order "
    "and place. GPT2-XL, of 1,024 tokens, is ROAM's (arXiv 2310.19295), which has 35.7 % less; it is in no mean."
)
ROAM = "gpt2_xl_b1"


def _steps(quick: bool) -> Iterator[tuple[str, StepGraph]]:
    """Yield names and step graphs: those of tests/data, and, where PyTorch can trace them, OLLA's and ROAM's others."""
    files = sorted(GRAPHS.glob("*_train.json.gz"))
    for file in files[::4] if quick else files:
        yield file.name.removesuffix("_train.json.gz"), read_graph(file)
    if quick or not all(find_spec(name) for name in ("torch", "transformers")):
        return
    from . import olla_networks

    for name in olla_networks.NETWORKS:
        for batch in PUBLISHED:
            yield f"{name}_b{batch}", olla_networks.step(name, batch)
    yield ROAM, olla_networks.gpt2_xl()


def measure(name: str, graph: StepGraph) -> dict[str, Any]:
    """Order and place one step."""
    found, seconds = timed(order_and_place, graph, alignment=64)
    recorded = blocks_of(graph, np.arange(len(graph))).problem
    reserved = replay(requests(recorded), POOL_MODELS["pytorch"]()).reserved_peak
    live, resident = lower_bound(recorded), graph.resident_bytes
    return {
        "name": name,
        "operators": len(graph),
        "order": 1 - (found.peak + resident) / (live + resident),
        "theirs": 1 - live / reserved,
        "ours": 1 - found.peak / found.arena,
        "total": 1 - (found.arena + resident) / (reserved + resident),
        "optimal": found.optimal,
        "seconds": seconds,
    }
