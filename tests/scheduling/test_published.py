"""The small published cases of OLLA's tests and of NNTrainer, by `simulate` on a given order and over all orders."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from stowplan.scheduling import Schedule, StepGraph, as_recorded, simulate
from stowplan.scheduling.bounds import bound_orders


def olla(text: str) -> tuple[StepGraph, list[str]]:
    """A graph from edges such as ``A>B10``: a value of 10 bytes that A writes and B reads."""
    edges = [(edge[0], edge[2], int(edge[3:])) for edge in text.split()]
    names = sorted({name for a, b, _ in edges for name in (a, b)})
    reads: list[list[int]] = [[] for _ in names]
    writes: list[list[int]] = [[] for _ in names]
    for value, (a, b, _) in enumerate(edges):
        writes[names.index(a)].append(value)
        reads[names.index(b)].append(value)
    return StepGraph(reads, writes, [size for *_, size in edges], label=names), names


def peak(graph: StepGraph, names: list[str], order: str) -> int:
    numbers = np.array([names.index(name) for name in order])
    return simulate(graph, Schedule(numbers, as_recorded(graph).way)).peak


def least(graph: StepGraph, names: list[str]) -> int:
    """Over all orders that the dependencies allow."""
    before = graph.dependencies().rows()
    peaks = []
    for order in permutations(range(len(names))):
        if all(order.index(j) < order.index(i) for i, row in enumerate(before) for j in row):
            peaks.append(peak(graph, names, "".join(names[i] for i in order)))
    return min(peaks)


SIMPLE = "A>B10 B>C20 B>D30 D>E40"
DIAMOND = "A>B10 B>C20 B>D30 D>E40 E>F50 C>F60 F>G10"
FANIN = "A>B10 A>C20 B>D30 D>E40 C>E50"


@pytest.mark.parametrize(
    ("edges", "order", "expected"),
    [(SIMPLE, "ABCDE", 70), (DIAMOND, "ABDECFG", 130), (DIAMOND, "ABCDEFG", 150), (FANIN, "ABDCE", 110)],
)
def test_olla_on_an_order(edges: str, order: str, expected: int) -> None:
    assert peak(*olla(edges), order) == expected


@pytest.mark.parametrize(("edges", "expected"), [(SIMPLE, 70), (DIAMOND, 130), (FANIN, 110)])
def test_olla_over_all_orders(edges: str, expected: int) -> None:
    graph, names = olla(edges)
    assert least(graph, names) == expected
    assert bound_orders(graph) <= expected


def test_olla_diamond_with_c_before_e() -> None:
    graph, names = olla(DIAMOND)
    c, e = names.index("C"), names.index("E")
    after = [[c] if i == e else [] for i in range(len(names))]
    tied = StepGraph(graph.reads, graph.writes, graph.size, after=after)
    assert least(tied, names) == 150


def test_olla_one_value_of_two_writers() -> None:
    shared = StepGraph([[], [0], [1], [2]], [[0, 1], [2], [2], []], [10, 20, 30])
    assert simulate(shared, as_recorded(shared)).peak == 60


def lifetimes(rows: list[tuple[int, int, int]]) -> StepGraph:
    """Operators 1, 2, 3 ...; a row is a value's bytes, the operator that writes it, the one that reads it."""
    n = max(last for *_, last in rows)
    reads = [[v for v, (_, _, last) in enumerate(rows) if last == i] for i in range(1, n + 1)]
    writes = [[v for v, (_, first, _) in enumerate(rows) if first == i] for i in range(1, n + 1)]
    return StepGraph(reads, writes, [size for size, *_ in rows])


def test_olla_pathological() -> None:
    sizes = [1, 9, 1, 8, 1, 7, 8, 7]
    made, freed = [1, 2, 4, 5, 7, 8, 11, 14], [10, 3, 13, 6, 16, 9, 12, 15]
    graph = lifetimes(list(zip(sizes, made, freed, strict=True)))
    assert simulate(graph, as_recorded(graph)).peak == 10


def test_nntrainer_minimum_memory() -> None:
    rows = [(1, 4, 5), (2, 4, 5), (3, 2, 5), (4, 4, 8), (5, 1, 10)]
    peaks = []
    for count in range(1, len(rows) + 1):
        graph = lifetimes(rows[:count])
        peaks.append(simulate(graph, as_recorded(graph)).peak)
    assert peaks == [1, 3, 6, 10, 15]
