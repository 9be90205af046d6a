"""The named policies, cheap and selective; and segments, which greedy begins with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stowplan.errors import BudgetError
from stowplan.papers.mlsys2023.cheap import cheap_operators, minimum_cut, network
from stowplan.scheduling import (
    Phase,
    Schedule,
    StepGraph,
    Way,
    lean,
    require_valid,
    simulate,
)
from stowplan.scheduling.checkpoint_segments import segments
from stowplan.scheduling.solve import schedule
from stowplan.scheduling.storage_groups import Storages

from ...scheduling.graphs import random_graph
from ...scheduling.nets import Builder, chain_net

seeds = st.integers(0, 10**6)


def maximum_flow(edges: list[tuple[int, int, float]], source: int, sink: int) -> float:
    """The most that edges can carry, as a linear program."""
    optimize = pytest.importorskip("scipy.optimize")
    if not edges:
        return 0.0
    balance = np.zeros((sink + 1, len(edges)))
    for number, (tail, head, _) in enumerate(edges):
        balance[tail, number] -= 1
        balance[head, number] += 1
    inner = np.delete(balance, [source, sink], axis=0)
    bounds = [(0, capacity) for *_, capacity in edges]
    found = optimize.linprog(-balance[sink], A_eq=inner, b_eq=np.zeros(len(inner)), bounds=bounds)
    return float(round(-found.fun))


@given(seeds, st.integers(6, 40))
@example(3827, 10)
@example(2, 6)  # nothing of forward is written
@settings(settings.get_profile("usual"))
def test_the_cut_is_the_maximum_flow(seed: int, operators: int) -> None:
    storages = Storages(random_graph(seed, operators))
    free = set(range(0, operators, 2)) | set(range(0, operators, 3))
    cut = minimum_cut(storages, free)
    tails, heads, capacities, names = network(storages, free)
    edges = [
        (a, b, math.inf if c is None else float(c)) for a, b, c in zip(tails, heads, capacities, strict=True)
    ]
    assert cut.bytes == maximum_flow(edges, 2 * len(names), 2 * len(names) + 1)
    # And it separates: what is needed later is saved, or made from what is, operator by operator (two storages may each
    # be written from a view of the other).
    graph, saved = storages.graph, set(cut.saved)
    storage, writers = graph.storage.tolist(), graph.writers()
    ran: set[int] = set()
    for operator in sorted(free):  # numbers grow along what is read
        if all(
            graph.resident[storage[v]]
            or storage[v] in saved
            or (storages.droppable(storage[v]) and set(writers[v]) <= ran)
            for v in graph.reads[operator]
        ):
            ran.add(operator)
    ready = saved | {s for s in names if storages.droppable(s) and set(storages.writers[s]) <= ran}
    assert {s for s in names if storages.later[s]} <= ready


def residual_net() -> StepGraph:
    """Two blocks of conv, norm, relu; the backward pass reads every result."""
    b = Builder()
    x = b.value(8, resident=True)
    read, edges = x, []
    for _ in range(2):
        (h,) = b.run("conv", [read], [100], seconds=50.0)
        (n,) = b.run("norm", [h], [100], seconds=1.0)
        (y,) = b.run("relu", [n], [100], seconds=1.0)
        edges += [("conv'", [read]), ("norm'", [h]), ("relu'", [y])]
        read = y
    gradient: list[int] = []
    for label, needs in reversed(edges):
        gradient = b.run(label, needs + gradient, [1], Phase.BACKWARD)
    return b.graph()


def test_cheap_saves_what_convolutions_write() -> None:
    pytest.importorskip("scipy")
    graph = residual_net()
    found = schedule(graph, solver="cheap")
    kept = {v for v in range(1, 7) if found.schedule.way[v] == Way.KEPT}
    assert kept == {1, 4}
    assert found.extra_seconds == 4
    assert cheap_operators(graph, {"relu"}) == {2, 5}
    assert minimum_cut(Storages(graph), cheap_operators(graph, {"relu"})).bytes == 400


def test_cheap_keeps_sizes_beyond_32_bits() -> None:
    pytest.importorskip("scipy")
    b = Builder()
    x = b.value(8, resident=True)
    (h,) = b.run("conv", [x], [3 * 2**33 + 1], seconds=1e3)
    (y,) = b.run("relu", [h], [2**34], seconds=1.0)
    b.run("relu'", [y], [1], Phase.BACKWARD)
    graph = b.graph()
    cut = minimum_cut(Storages(graph), {1})
    assert cut.saved == [y]
    assert cut.bytes == 2**34


def test_selective_packs_what_may_not_run_again() -> None:
    b = Builder()
    q = b.value(8, resident=True)
    (scores,) = b.run("MatMul", [q], [64])
    (p,) = b.run("Softmax", [scores], [64])
    out, mask = b.run("Dropout", [p], [64, 64], repeatable=False)
    (o,) = b.run("MatMul", [out], [8])
    b.run("Attention'", [scores, p, out, mask, o], [1], Phase.BACKWARD)
    found = schedule(b.graph({mask: 8}), solver="selective").schedule.way
    assert [found[v] for v in (scores, p, out, mask, o)] == [1, 1, 0, 2, 0]


def test_segments_keep_about_the_root() -> None:
    """Ten segments of 100 equal layers: at the fullest moment twice the root or so is alive."""
    b = Builder()
    x = b.value(1, resident=True)
    values = [x]
    for _ in range(100):
        values += b.run("layer", [values[-1]], [1])
    gradient: list[int] = []
    for k in reversed(range(100)):
        gradient = b.run("layer'", [values[k], *gradient], [1], Phase.BACKWARD)
    graph = b.graph()
    found = simulate(graph, Schedule(lean(graph).order, segments(Storages(graph), 10)))
    assert simulate(graph, lean(graph)).peak >= 100
    assert found.peak <= 25
    assert found.extra_seconds <= 100


@given(seeds, st.integers(10, 60))
@settings(settings.get_profile("dearest"))
def test_the_least_peak_is_at_most_that_of_segments(seed: int, layers: int) -> None:
    graph = chain_net(layers, seed)
    ways = [segments(Storages(graph), count) for count in range(2, 9)]
    with pytest.raises(BudgetError) as raised:
        schedule(graph, 0)
    assert raised.value.least <= min(simulate(graph, Schedule(lean(graph).order, way)).peak for way in ways)


@given(seeds)
@settings(settings.get_profile("dear"))
def test_cheap_is_a_valid_schedule(seed: int) -> None:
    pytest.importorskip("scipy")
    graph = random_graph(seed, 20)
    require_valid(graph, schedule(graph, solver="cheap").schedule)
