"""Step graphs at other batch sizes: exact where bytes are affine, and an error that names what differs."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import GraphError
from stowplan.prediction.graphs import TOLERANCE, GraphModel, fit_graphs
from stowplan.scheduling import Phase, Relation, StepGraph

from .graphs import random_graph

COLUMNS = tuple(inspect.signature(StepGraph).parameters)


def scaled(graph: StepGraph, batch: int, per_item: np.ndarray) -> StepGraph:
    """Return a graph whose values, but the resident ones, grow with the batch."""
    own = graph.storage == np.arange(graph.values)
    grown = per_item * batch * (own & ~graph.resident)
    columns = {name: getattr(graph, name) for name in COLUMNS}
    columns["size"], columns["packed"] = graph.size + grown, graph.packed + grown
    columns["seconds"], columns["workspace"] = graph.seconds * (1 + batch), graph.workspace * (2 + batch)
    return StepGraph(**columns)


def assert_same(one: StepGraph, other: StepGraph) -> None:
    for name in COLUMNS:
        ours, theirs = getattr(one, name), getattr(other, name)
        if isinstance(ours, Relation):
            assert ours.rows() == theirs.rows(), name
        elif name == "seconds":
            assert np.allclose(ours, theirs)
        else:
            assert np.array_equal(ours, theirs), name


@settings(settings.get_profile("usual"))
@given(
    st.integers(0, 2**40),
    st.lists(st.integers(1, 50), min_size=2, max_size=4, unique=True),
    st.integers(1, 500),
)
def test_affine_steps_are_predicted_exactly(seed: int, batches: list[int], target: int) -> None:
    graph = random_graph(seed)
    per_item = np.random.default_rng(seed).integers(0, 1000, graph.values)
    model = fit_graphs({batch: scaled(graph, batch, per_item) for batch in batches})
    assert_same(model.at(target), scaled(graph, target, per_item))
    assert model.batches == tuple(sorted(batches))
    for deviation in model.deviation.values():
        assert deviation == pytest.approx((0.0, 0.0, 0.0))
    resident = model.reference.resident
    assert np.array_equal(model.at(target).size[resident], graph.size[resident])


def step(y: int = 100, work: int = 8, took: float = 1.0, **columns: Any) -> StepGraph:
    """A layer and its backward step."""
    columns = {
        "reads": [[0, 1], [2, 1]],
        "writes": [[2], [3]],
        "size": [50, 30, y, 10],
        "resident": [True, True, False, False],
        "phase": [Phase.FORWARD, Phase.BACKWARD],
        "label": ["conv", "conv'"],
        "name": ["W", "x", "y", "gx"],
        "workspace": [0, work],
        "seconds": [0.5, took],
        **columns,
    }
    return StepGraph(**columns)


def test_bytes_are_rounded_up_and_never_negative() -> None:
    assert fit_graphs({1: step(100), 3: step(101)}).at(2).size[2] == 101
    assert fit_graphs({1: step(50), 3: step(10)}).at(5).size[2] == 0


def test_powers_of_the_batch_are_exact_and_what_nothing_checks_is_said() -> None:
    model = fit_graphs({2: step(4 * 2**2), 4: step(4 * 4**2)})
    assert (model.at(64).size[2], model.cannot_tell) == (4 * 64**2, "")
    for columns, name in (({"y": 101}, "y"), ({"work": 9}, "the workspace of conv'")):
        assert f"1 of 6 values and workspaces follow no law that was checked, like {name} (" in (
            fit_graphs({2: step(), 4: step(**columns)}).cannot_tell
        )


def test_workspaces_and_seconds_never_fall_with_the_batch() -> None:
    model = fit_graphs({2: step(work=80, took=3.0), 4: step(work=60, took=1.0)})
    for batch in (2, 4, 100):
        assert model.at(batch).workspace.tolist() == [0, 60]
        assert model.at(batch).seconds.tolist() == [0.5, 1.0]
    # 0.1 s at 2 and 1 s at 4 would be less than nothing at 1: in proportion to the larger.
    assert fit_graphs({2: step(took=0.1), 4: step(took=1.0)}).at(1).seconds[1] == 0.25


def test_whether_it_grows() -> None:
    assert not fit_graphs({2: step(), 4: step(took=2.0)}).grows
    assert fit_graphs({2: step(), 4: step(101)}).grows
    assert fit_graphs({2: step(), 4: step(work=9)}).grows


def test_a_graph_between_says_how_far_it_is_off() -> None:
    model: GraphModel = fit_graphs({2: step(2000), 3: step(3001, work=10, took=1.5), 4: step(4000, work=8)})
    found = model.deviation[3]
    assert found.bytes == 1 / (50 + 30 + 3001 + 10) < TOLERANCE
    assert found.workspace == 0.2
    assert found.seconds == 0.25
    with pytest.raises(
        GraphError, match=r"y \(value 2\) has 3500 bytes at batch 3; expected 3000, from 2000 at 2"
    ):
        fit_graphs({2: step(2000), 3: step(3500), 4: step(4000)})


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (
            {"label": ["conv", "pool'"]},
            "at operator 1: conv', which reads [2, 1] and writes [3]; and pool', which",
        ),
        (
            {"reads": [[0, 1], [2]]},
            "at operator 1: conv', which reads [2, 1] and writes [3]; and conv', which reads [2]",
        ),
        ({"phase": [Phase.FORWARD, Phase.FORWARD]}, "at operator 1"),
        ({"after": [[], [0]]}, "at operator 1"),
        ({"storage": [0, 1, 2, 2]}, "differ at gx (value 3)"),
        ({"resident": [True, True, False, True]}, "differ at gx (value 3)"),
        (
            {
                "size": [50, 30, 100, 10, 1],
                "resident": [True, True, False, False, False],
                "name": ["W", "x", "y", "gx", "more"],
            },
            "differ at more (value 4)",
        ),
    ],
)
def test_the_first_difference_is_named(other: dict[str, Any], expected: str) -> None:
    with pytest.raises(GraphError, match="the steps at batches 2 and 4 differ ") as error:
        fit_graphs({2: step(), 4: step(**other)})
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("graphs", "expected"),
    [
        ({2: step()}, "1 step graph; expected those of two or more batch sizes"),
        ({0: step(), 2: step()}, "a batch of 0; expected 1 or more"),
    ],
)
def test_what_cannot_be_fitted(graphs: dict[int, StepGraph], expected: str) -> None:
    with pytest.raises(GraphError, match=re.escape(expected)):
        fit_graphs(graphs)
    with pytest.raises(GraphError, match="a batch of 0; expected 1 or more"):
        fit_graphs({1: step(), 2: step()}).at(0)
