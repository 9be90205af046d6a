"""NNTrainer's swap: what is in memory when everything may leave it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.packing import lower_bound, pack
from stowplan.packing.check import check
from stowplan.papers.nntrainer.layers import step_graph
from stowplan.papers.nntrainer.swapping import Transfer, latency, swapped
from stowplan.scheduling import StepGraph

from .test_layers import random_layers, small


def used(graph: StepGraph, at: int) -> set[int]:
    """The storages that an operator uses."""
    values = {*graph.reads[at], *graph.writes[at]}
    return {int(graph.storage[value]) for value in values}


def in_memory(graph: StepGraph, lookahead: int) -> int:
    """The most bytes at an order: what is used then, and what is on its way, looked up order by order."""
    n, most = len(graph), 0
    orders = {s: [at for at in range(n) if s in used(graph, at)] for s in set(graph.storage.tolist())}
    for at in range(n):
        found = 0
        for storage, uses in orders.items():
            resident = bool(graph.resident[storage])
            before = [one for one in uses if one <= at]
            after = [one for one in uses if one >= at]
            gone = at not in uses and not (
                (before and at - before[-1] <= lookahead and (after or resident))
                or (after and after[0] - at <= lookahead and (before or resident))
            )
            # It stays where it could not be back in time.
            if gone and before and after and after[0] - before[-1] - 1 <= 2 * lookahead:
                gone = False
            found += 0 if gone or not uses else int(graph.size[storage])
        most = max(most, found)
    return most


@given(seed=st.integers(0, 2**40), lookahead=st.integers(0, 3))
def test_what_is_in_memory_is_used_or_on_its_way(seed: int, lookahead: int) -> None:
    graph = step_graph(random_layers(random.Random(seed)))
    problem, _ = found = swapped(graph, lookahead)
    within = problem.end <= len(graph)
    assert (problem.start >= 0).all()
    assert (problem.end[~within] <= len(graph) + lookahead).all()
    assert lower_bound(problem) == in_memory(graph, lookahead)
    check(problem, pack(problem).offsets)
    assert found.moved >= 2 * sum(
        int(graph.size[s])
        for s in np.flatnonzero(graph.resident)
        if s in set().union(*(used(graph, at) for at in range(len(graph))))
    )


def test_a_weight_comes_three_times_on_demand() -> None:
    graph = step_graph(small())
    problem, _ = found = swapped(graph, 0)
    assert problem.size.tolist().count(7) == 3 + 1  # at forward, derivative and apply; its gradient
    assert lower_bound(problem) == max(
        sum(int(graph.size[s]) for s in used(graph, at)) for at in range(len(graph))
    )
    assert swapped(graph, len(graph)).moved < found.moved


@given(seed=st.integers(0, 2**40), lookahead=st.integers(0, 3))
def test_the_step_waits_for_what_does_not_fit_behind_it(seed: int, lookahead: int) -> None:
    rng = random.Random(seed)
    graph = step_graph(random_layers(rng))
    graph = graph.with_seconds([rng.random() for _ in range(len(graph))])
    found, computing = swapped(graph, lookahead), graph.seconds.sum()
    took, moving = latency(graph, found.transfers, 10.0), found.moved / 10
    assert max(computing, moving) <= took * (1 + 1e-9)
    assert took <= (computing + moving) * (1 + 1e-9)
    if lookahead == 0:
        assert took == pytest.approx(computing + moving)
    assert latency(graph, found.transfers, 1e12) == pytest.approx(computing)


def test_a_transfer_goes_on_behind_the_operators_before_its_use() -> None:
    empty = [[], [], []]
    graph = StepGraph(empty, empty, size=[]).with_seconds([1.0, 2.0, 4.0])
    behind = [Transfer(0, 1, 10), Transfer(1, 2, 10), Transfer(3, 3, 10)]
    assert latency(graph, behind, 10.0) == 1 + 2 + 4 + 1  # only the last one has nothing to go on behind
    # The second operator waits 1.5 s, the third 0.5 s.
    assert latency(graph, behind[:2], 4.0) == 2.5 + 2.5 + 4
