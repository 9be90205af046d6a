"""A step graph built from calls and plain arrays: rows, storages, edges, what the program holds."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan.chainer.graph_builder import LEFT, Call, GraphBuilder
from stowplan.scheduling import Phase


def call(label: str) -> Call:
    return Call(label, Phase.FORWARD, ("forward", 0))


def test_rows_storages_and_workspaces() -> None:
    builder = GraphBuilder()
    builder.begin(Call("before", Phase.FORWARD, LEFT))  # nothing is left: no row
    batch, made = np.zeros(1000, np.uint8), np.zeros(300, np.uint8)
    first = call("first")
    x = builder.add(batch, "x")
    first.outside.append(x)
    y = builder.write(first, made, "y")
    view = builder.write(first, made[100:], "view")
    number = builder.begin(first, [x, x])
    second = call("second")
    second.after.append(number)
    builder.begin(second, [view])
    assert builder.storage_of(made.view(np.recarray)) == y
    graph, rows = builder.build([0, 350, 20])
    assert [row.label for row in rows] == ["for first", "first", "second"]
    assert graph.reads.rows() == [[], [x], [view]]
    assert graph.writes.rows() == [[x], [y, view], []]
    assert graph.after.rows() == [[], [], [1]]
    assert graph.size.tolist() == [1000, 300, 0]
    assert graph.storage.tolist() == [x, y, y]
    assert graph.workspace.tolist() == [0, 50, 20]


def test_a_value_is_held_until_its_array_goes() -> None:
    builder = GraphBuilder()
    arrays = [np.zeros(8) for _ in range(3)]
    one = call("one")
    values = [builder.write(one, array, str(i)) for i, array in enumerate(arrays)]
    builder.begin(one)
    for array, value in zip(arrays[:2], values[:2], strict=True):
        builder.watch(array, value)
    builder.begin(call("two"))
    del arrays[0], array
    builder.begin(call("three"))
    graph, _ = builder.build([0, 0, 0])
    assert graph.held.tolist() == [1, 2, -1]


@pytest.mark.parametrize("terms", [2, 3])
def test_the_calls_that_add_to_a_sum_of_three_run_in_order(terms: int) -> None:
    builder = GraphBuilder()
    for number in range(terms):
        builder.begin(call(str(number)))
        builder.add_terms("sum", number, 1)
    graph, _ = builder.build([0] * terms)
    assert graph.after.rows() == ([[], []] if terms == 2 else [[], [0], [1]])


def test_an_array_at_the_id_of_one_that_has_gone_has_a_storage_of_its_own() -> None:
    builder = GraphBuilder()
    for _ in range(3):  # each mostly at the place of the one before
        array = np.zeros(64)
        value = builder.add(array, "array")
        assert builder.storage_of(array) == value
        del array
