"""ChainerMN on two ranks: the iterator that stowplan mends, and data-parallel training on pools."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from .ranks import needs_mpi, run_ranks

HERE = Path(__file__).parent
WARMUP = 2
"""Steps of train_ranks.py; the pool records one more, and the one after it confirms it."""


def results(out: str) -> dict[str, list[dict[str, Any]]]:
    """Return what train_ranks.py has printed, by way, rank 0 first."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in out.splitlines():
        if line.startswith("{"):
            found[json.loads(line)["way"]].append(json.loads(line))
    return {way: sorted(ranks, key=lambda one: one["rank"]) for way, ranks in found.items()}


def assert_replayed(ranks: list[dict[str, Any]], warmup: int = WARMUP) -> None:
    assert len(ranks) == 2
    for rank in ranks:
        assert min(rank["shares"][warmup + 2 :]) >= 0.99, rank
        # Those of the three layers' weights.
        assert rank["averaged"] == [True] * 3, rank


@needs_mpi
def test_iterators() -> None:
    out = run_ranks(HERE / "iterator_ranks.py")
    assert "rank 0 is done" in out
    assert "rank 1 is done" in out


@needs_mpi
def test_training_on_pools() -> None:
    found = results(run_ranks(HERE / "train_ranks.py", "plain", "pool", "scheduled", "differs"))
    parameters = {rank["parameters"] for way in found if way != "differs" for rank in found[way]}
    assert len(parameters) == 1

    assert_replayed(found["pool"])

    # The first step of all is watched, outside of the pool.
    assert_replayed(found["scheduled"], WARMUP + 1)
    for rank in found["scheduled"]:
        assert rank["keeps_gradients"].startswith("gradients are averaged over all ranks")

    assert_replayed(found["differs"])
    assert len({rank["parameters"] for rank in found["differs"]}) == 1
