"""A step graph built from calls and plain arrays: rows, storages, edges, what the program holds."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan.chainer.graph_builder import Call, GraphBuilder
from stowplan.scheduling import Phase


def call(label: str) -> Call:
    return Call(label, Phase.FORWARD, ("forward", 0))


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
