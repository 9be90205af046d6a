"""Sekiyama et al. 2018 (arXiv 1804.10001): profile-guided memory optimization."""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.insight.pool_models import POOL_MODELS, replay, requests
from stowplan.packing import lower_bound, pack

from ..packing.inference import NETWORKS, PUBLISHED, resnet50
from .table import Table

PARAMETERS = {"alexnet": 60_965_224 * 4, "googlenet": 13_378_280 * 4, "resnet50": 25_610_216 * 4}
"""Bytes of what Chainer's networks retain: parameters, GoogLeNet's with its auxiliary classifiers, and statistics."""
PRINTED = {"googlenet": "\N{MINUS SIGN}12.6 %", "resnet50": "\N{MINUS SIGN}10.0 %"}
"""Of figure 2b: the memory of inference, beside CuPy's pool."""


def tables(quick: bool) -> Iterator[Table]:
    """Return the optima, and what the pool takes beside CuPy's."""
    rows, saved = [], []
    for name, network in {**NETWORKS, "resnet50": resnet50}.items():
        problem = network()
        best_fit, bound = pack(problem, "best_fit").peak, lower_bound(problem)
        if name in PUBLISHED:
            optimum = f"{PUBLISHED[name]:,}"
            rows.append([name, optimum, f"{bound:,}", f"{best_fit:,}", f"{pack(problem).peak:,}"])
        pool = replay(requests(problem), POOL_MODELS["cupy"]()).reserved_peak
        retained = PARAMETERS[name]
        saved.append(
            [
                name,
                f"{pool / 2**20:,.1f}",
                f"{best_fit / 2**20:,.1f}",
                f"{best_fit / pool - 1:.1%}".replace("-", "\N{MINUS SIGN}"),
                f"{(best_fit + retained) / (pool + retained) - 1:.1%}".replace("-", "\N{MINUS SIGN}"),
                PRINTED.get(name, ""),
            ]
        )
    columns = ("inference of one image", "optimum, paper", "lower bound", "best fit", "auto")
    yield Table("The heuristic beside CPLEX (section 5.2.3), bytes", columns, rows)
    columns = (
        "network",
        "CuPy's pool MiB",
        "arena MiB",
        "change",
        "with the parameters",
        "the paper, figure 2b",
    )
    yield Table("Inference with cuDNN's workspaces of 8 MiB", columns, saved, NOTE)


NOTE = (
    "The requests are made from the layers (`experiments.packing.inference`); CuPy's pool is a model of CuPy 14's. "
    "`experiments.memory` replays recorded steps, which have no such workspaces on the host: GoogLeNet's change is "
    "then \N{MINUS SIGN}7.0 %."
)
