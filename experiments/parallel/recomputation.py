"""What recomputation costs in time: none, selective and full, of the same network on one rank.

Full recomputation keeps the input of each block and makes all else again, a forward pass; selective makes what softmax
and dropout of attention make (Korthikanti et al., sections 5 and 6.2). On one rank, as collectives never run again. The
seconds are those that the recorder has measured of each operator; what runs twice is counted twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stowplan.scheduling import Phase, Schedule, StepGraph, Way, choices, lean, schedule, simulate

from ..measures.kept import Row


def overheads(words: int, batch: int, width: int, heads: int, layers: int) -> list[Row]:
    """Return a row for none, selective and full recomputation."""
    graph = recorded(words, batch, width, heads, layers)
    none, selective = lean(graph), schedule(graph, solver="selective").schedule
    seconds = float(graph.seconds.sum())
    rows = []
    for name, found in (("none", none), ("selective", selective), ("full", full(graph, none))):
        outcome = simulate(graph, found)
        extra = outcome.extra_seconds / seconds
        rows.append({"recomputation": name, "kept": kept(graph, found), "peak": outcome.peak, "extra": extra})
    return rows


def recorded(words: int, batch: int, width: int, heads: int, layers: int) -> StepGraph:
    """Return the graph of a training step on one rank."""
    import chainer

    from stowplan.chainer import record_graph
    from stowplan.papers.mlsys2023.parallel import LoneRank, Ranks

    from ..models.split_block import Blocks

    net = Blocks(layers, width, heads, Ranks(LoneRank(1)))
    optimizer = chainer.optimizers.SGD(1e-5).setup(net)
    x = np.random.default_rng(0).standard_normal((words * batch, width), np.float32)
    gy = x.copy()

    def step() -> None:
        y = net(x, batch)
        net.cleargrads()
        y.grad = gy
        y.backward()
        optimizer.update()

    return record_graph(optimizer, step, early_updates=True)


def full(graph: StepGraph, lean: Schedule) -> Schedule:
    """Return the schedule that drops all forward values but the sums that blocks end with."""
    writer = [row[0] if row else -1 for row in graph.writers()]
    sums = [
        v for v in range(graph.values) if graph.label[writer[v]] == "_ + _" and _forward(graph, writer[v])
    ]
    inputs = set(graph.storage[sums[1::2]].tolist())
    way = lean.way.copy()
    for storage, ways in choices(graph).items():
        if Way.DROPPED in ways and storage not in inputs and _forward(graph, writer[storage]):
            way[graph.storage == storage] = Way.DROPPED
    return Schedule(lean.order, way)


def kept(graph: StepGraph, schedule: Schedule) -> int:
    """Sum the forward values that are kept for the backward pass."""
    last = np.zeros(graph.values, dtype=np.int64)
    for operator, values in enumerate(graph.reads.rows()):
        last[graph.storage[values]] = operator
    writer: Any = [row[0] if row else -1 for row in graph.writers()]
    return sum(
        int(graph.size[v])
        for v in np.flatnonzero(~graph.resident & (schedule.way == Way.KEPT) & (graph.size > 0)).tolist()
        if _forward(graph, writer[v]) and not _forward(graph, int(last[v]))
    )


def _forward(graph: StepGraph, operator: int) -> bool:
    return operator >= 0 and bool(graph.phase[operator] == Phase.FORWARD)
