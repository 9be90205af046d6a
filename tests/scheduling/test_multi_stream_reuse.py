"""Safe reuse between streams: against plain reachability, and in random runs of the streams."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import FormatError, GraphError
from stowplan.packing import check, pack
from stowplan.papers.somas.streams import chains
from stowplan.scheduling import StepGraph, check_reuse, read_graph, read_streams, safe_reuse

from ..stowplan.command_line import figures, refused, stowplan
from .graphs import random_graph

GRAPHS = Path(__file__).resolve().parents[1] / "data" / "graphs"
# a makes t, which b reads; c makes v from t, which d reads; d makes u.
FORK = StepGraph([[], [0], [0], [1, 2]], [[0], [1], [2], [3]], [4, 2, 8, 4], label="abcd", name="twvu")


def drawn(seed: int, count: int) -> tuple[random.Random, StepGraph, list[list[int]]]:
    """A graph on so many streams, and what goes on to draw."""
    rng, graph = random.Random(seed), random_graph(seed)
    streams: list[list[int]] = [[] for _ in range(count)]
    for operator in range(len(graph)):
        rng.choice(streams).append(operator)
    return rng, graph, streams


def run(rng: random.Random, graph: StepGraph, streams: list[list[int]]) -> list[int]:
    """An order in which the streams, each as fast as it likes, may run their operators."""
    left = [list(row) for row in streams]
    before = graph.dependencies().rows()
    order: list[int] = []
    while len(order) < len(graph):
        ready = [row for row in left if row and set(before[row[0]]) <= set(order)]
        order.append(rng.choice(ready).pop(0))
    return order


@settings(settings.get_profile("usual"))
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_exactly_what_plain_reachability_allows(seed: int, count: int) -> None:
    _, graph, streams = drawn(seed, count)
    check_reuse(graph, streams, safe_reuse(graph, streams))


@settings(settings.get_profile("dear"))
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_no_byte_is_two_tensors_at_whatever_speeds(seed: int, count: int) -> None:
    rng, graph, streams = drawn(seed, count)
    reuse = safe_reuse(graph, streams)
    placed = pack(reuse.problem).offsets
    users, writers = graph.users(), graph.writers()
    for _ in range(5):
        position = {operator: k for k, operator in enumerate(run(rng, graph, streams))}
        start, end = [], []
        for storage, operator in zip(reuse.storage.tolist(), reuse.operator.tolist(), strict=True):
            values = np.flatnonzero(graph.storage == storage).tolist() if operator < 0 else []
            first = {operator} if operator >= 0 else {w for v in values for w in writers[v]}
            held = {int(graph.held[v]) for v in values if graph.held[v] >= 0}
            last = first | held | (users[storage] if operator < 0 else set())
            start.append(min(position[o] for o in first))
            kept = any(graph.kept[v] for v in values)
            end.append(len(graph) if kept else max(position[o] for o in last) + 1)
        check(type(reuse.problem)(reuse.problem.size, start, end), placed)


def test_the_picture() -> None:
    reuse = safe_reuse(FORK, [[0, 1, 3], [2]])
    apart = {tuple(FORK.name[reuse.storage[b]] for b in pair) for pair in reuse.problem.apart.tolist()}
    # t and u: all that reads t is over when d begins. w and v live at once, in this order or another.
    assert apart == set()
    assert reuse.clock.tolist() == [[0, 0], [1, 0], [1, 0], [2, 1]]
    reuse = safe_reuse(StepGraph([[], [0], [], [2]], [[0], [1], [2], [3]], [4] * 4), [[0, 1], [2, 3]])
    assert {tuple(pair) for pair in reuse.problem.apart.tolist()} == {(0, 2), (0, 3), (1, 2), (1, 3)}
    check_reuse(FORK, [[0, 1, 3], [2]], safe_reuse(FORK, [[0, 1, 3], [2]]))


def test_one_stream_is_an_ordinary_step_and_contiguous_values_lie_side_by_side() -> None:
    graph = read_graph(GRAPHS / "resnet18_b1_eval.json.gz")
    assert not len(safe_reuse(graph, [list(range(len(graph)))]).problem.apart)
    placed = pack(safe_reuse(FORK, [[0, 1, 3], [2]], contiguous=[[1, 2]]).problem).offsets
    assert placed[2] == placed[1] + 2
    with pytest.raises(GraphError, match="has a value that no operator writes"):
        safe_reuse(FORK, [[0, 1, 3], [2]], contiguous=[[1, 9]])


@pytest.mark.parametrize("count", [2, 4])
def test_published_graphs_are_decided_rightly(count: int) -> None:
    graph = read_graph(GRAPHS / "alexnet_b1_train.json.gz")
    streams = chains(graph, count)
    reuse = safe_reuse(graph, streams)
    check_reuse(graph, streams, reuse)
    assert len(reuse.problem.apart)
    check(reuse.problem, pack(reuse.problem).offsets)


@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        ([[0, 1, 3]], r"c \(operator 2\) is in no stream"),
        ([[0, 1, 2, 3, 4]], "operator 4, which the graph has not; expected 0 to 3"),
        ([[0, 1, 3], [2, 1]], r"b \(operator 1\) is in the streams 0 and 1"),
        ([[3, 1], [0, 2]], r"at [bd] \(operator [13]\), which would have to run before itself \(a cycle\)"),
    ],
)
def test_refuses_what_is_no_partition(streams: list[list[int]], expected: str) -> None:
    with pytest.raises(GraphError, match=expected):
        safe_reuse(FORK, streams)


def test_a_false_certificate_is_found() -> None:
    streams = [[0, 1], [2, 3]]
    graph = StepGraph([[], [0], [], [2]], [[0], [1], [2], [3]], [4] * 4)
    reuse = safe_reuse(graph, streams)
    clock = reuse.clock.copy()
    clock[2, 0] = 1
    with pytest.raises(GraphError, match=r"operator 2.*has 1 operators of stream 0 before it; 0 are"):
        check_reuse(graph, streams, type(reuse)(**{**vars(reuse), "clock": clock}))
    problem = type(reuse.problem)(reuse.problem.size, reuse.problem.start, reuse.problem.end)
    with pytest.raises(GraphError, match="blocks 0 and 2 may share memory, but neither is over"):
        check_reuse(graph, streams, type(reuse)(**{**vars(reuse), "problem": problem}))
    other = [[0], [1], [2], [3]]
    whole = safe_reuse(graph, [[0, 1, 2, 3]])
    with pytest.raises(GraphError, match="certificate"):
        check_reuse(graph, other, whole)


def test_the_command_packs_a_graph_on_streams(tmp_path: Path) -> None:
    graph, streams = tmp_path / "g.graph", tmp_path / "s.csv"
    FORK.save(graph)
    streams.write_text("operator,stream\na,x\n1,x\nd,x\nc,y\n")
    assert read_streams(streams, FORK) == [[0, 1, 3], [2]]
    found = figures("pack", "--graph", graph, "--streams", streams)
    assert (found["n"], found["peak"], found["apart"]) == (4, 14, 0)
    assert "4 blocks, solver" in stowplan("pack", "--graph", graph).output
    streams.write_text("operator,stream\na,x\nb,x\nc,y\nd,z\n")
    assert "4 blocks" in stowplan("pack", "--graph", graph, "--streams", streams).output
    for arguments in ([], ["--streams", streams], [streams, "--graph", graph]):
        assert "expected PROBLEM, or --graph" in refused("pack", *arguments)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("operator,queue\n", r"1: the columns are \['operator', 'queue'\]; expected operator and stream"),
        ("operator,stream\nq,0\n", "2: the graph has no operator 'q'"),
        ("operator,stream\n4,0\n", "2: the graph has no operator '4'"),
        ("operator,stream\na,0\n0,1\n", "3: operator '0' is there twice"),
        ("operator,stream\na,0\nb,0\nd,0\n", r"c \(operator 2\) is in no stream"),
        ("operator,stream\nd,0\nb,0\na,1\nc,1\n", "the streams' order contradicts the data's"),
        ('operator,stream\n"a,0\n', "not a CSV file"),
    ],
)
def test_the_command_refuses_bad_streams_in_one_line(text: str, expected: str, tmp_path: Path) -> None:
    graph, streams = tmp_path / "g.graph", tmp_path / "s.csv"
    FORK.save(graph)
    streams.write_text(text)
    (line,) = refused("pack", "--graph", graph, "--streams", streams).splitlines()
    assert streams.name in line
    with pytest.raises((FormatError, GraphError), match=expected):
        safe_reuse(FORK, read_streams(streams, FORK))


def test_a_name_that_several_operators_have_needs_a_number(tmp_path: Path) -> None:
    twice = StepGraph([[], [0]], [[0], [1]], [4, 4], label=["f", "f"])
    (tmp_path / "s.csv").write_text("operator,stream\nf,0\n")
    with pytest.raises(FormatError, match="several operators are 'f'; expected a number"):
        read_streams(tmp_path / "s.csv", twice)
    (tmp_path / "s.csv").write_text("operator,stream\n0,0\n1,0\n")
    assert read_streams(tmp_path / "s.csv", twice) == [[0, 1]]
