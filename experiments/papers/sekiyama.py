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
        arenas, bound = [pack(problem, solver).peak for solver in ("best_fit", "auto")], lower_bound(problem)
        if name in PUBLISHED:
            figures = (PUBLISHED[name], bound, *arenas)
            rows.append([name, *(f"{figure:,}" for figure in figures)])
        pool = replay(requests(problem), POOL_MODELS["cupy"]()).reserved_peak
        retained = PARAMETERS[name]
        cells = [f"{size / 2**20:,.1f}" for size in (pool, *arenas)]
        for more in (0, retained):
            cells += [
                f"{(arena + more) / (pool + more) - 1:.1%}".replace("-", "\N{MINUS SIGN}") for arena in arenas
            ]
        saved.append([name, *cells, PRINTED.get(name, "")])
    columns = ("inference of one image", "optimum, paper", "lower bound", "best fit", "auto")
    yield Table("The heuristic beside CPLEX (section 5.2.3), bytes", columns, rows)
    columns = (
        *("network", "CuPy's pool MiB", "best fit", "auto", "change, best fit", "change, auto"),
        *("with parameters, best fit", "with parameters, auto", "the paper, figure 2b"),
    )
    yield Table("Inference with cuDNN's workspaces of 8 MiB", columns, saved, NOTE)


NOTE = (
    "The requests are made from the layers (`experiments.packing.inference`); CuPy's pool is a model of CuPy 14's. "
    "`experiments.memory` replays recorded steps, which have no such workspaces on the host: GoogLeNet's change is "
    "then \N{MINUS SIGN}7.0 %."
)
