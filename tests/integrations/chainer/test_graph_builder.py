"""A step graph built from plain arrays: their storages."""

from __future__ import annotations

import numpy as np

from stowplan.chainer.graph_builder import GraphBuilder


def test_an_array_at_the_id_of_one_that_has_gone_has_a_storage_of_its_own() -> None:
    builder = GraphBuilder()
    for _ in range(3):  # each mostly at the place of the one before
        array = np.zeros(64)
        value = builder.add(array, "array")
        assert builder.storage_of(array) == value
        del array
