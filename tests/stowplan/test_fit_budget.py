"""``stowplan fit`` of step graphs: the largest batch with lean and with recomputation, against trying each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stowplan.errors import BudgetError, GraphError
from stowplan.prediction.graphs import GraphModel, fit_graphs
from stowplan.prediction.largest import largest_scheduled_batch, predict_schedules
from stowplan.profiler import Profile
from stowplan.scheduling import Phase, StepGraph, lean, simulate
from stowplan.scheduling.check import check
from stowplan.scheduling.solve import schedule

from .command_line import figures, refused, stowplan
from .step_graphs import KIB, LAYERS, layers

SMALL = {2: layers(2), 4: layers(4)}


@pytest.fixture
def graphs(tmp_path: Path) -> list[str]:
    arguments = []
    for batch, graph in SMALL.items():
        graph.save(tmp_path / f"{batch}.graph")
        arguments.append(f"{batch}={tmp_path / f'{batch}.graph'}")
    return arguments


@pytest.fixture
def model() -> GraphModel:
    return fit_graphs(SMALL)


def lean_peak(batch: int) -> int:
    graph = layers(batch)
    return simulate(graph, lean(graph)).peak


def retained(batch: int) -> int:
    """Parameters, and the images, which grow with the batch."""
    return layers(batch).resident_bytes


def test_predictions_are_those_of_the_batch_itself(graphs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "eight.graph"
    found = figures("fit", *graphs, "--batch", 8, "-o", out)
    rows = found.pop("predictions")
    assert found == {
        "batches": [2, 4],
        "operators": 4 * LAYERS + 1,
        "values": SMALL[2].values,
        "deviation": {},
        "cannot_tell": "",
    }
    (row,) = rows
    assert (row["batch"], row["lean_peak"]) == (8, lean_peak(8))
    assert row["peak"] < 0.7 * row["lean_peak"]
    assert (row["retained"], row["total"]) == (retained(8), row["peak"] + retained(8))
    assert row["step_seconds"] == pytest.approx(layers(8).seconds.sum())
    assert row["extra_share"] == pytest.approx(row["extra_seconds"] / row["step_seconds"])
    assert row["extra_share"] > 0
    eight = StepGraph.load(out)
    assert np.array_equal(eight.size, layers(8).size)
    assert np.allclose(eight.seconds, layers(8).seconds)


def test_without_a_wish_doublings(graphs: list[str]) -> None:
    found = figures("fit", *graphs, "--time-limit", 0.2, "--retained", "1MiB")
    assert [row["batch"] for row in found["predictions"]] == [8, 16, 32, 64]
    assert all(row["total"] - row["peak"] == row["retained"] == 2**20 for row in found["predictions"])


def test_for_people(graphs: list[str], tmp_path: Path) -> None:
    layers(3).save(tmp_path / "3.graph")
    result = stowplan("fit", *graphs, f"3={tmp_path / '3.graph'}", "--batch", 8, "--budget", "150KiB")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == (
        f"{4 * LAYERS + 1} operators, fitted from batches 2 and 4; "
        "checked at 3: bytes 0.000% off, workspaces 0.0%, seconds 0.0%"
    )
    assert any(line.startswith(" 8 ") for line in lines)
    assert any(line.startswith("The largest batch within 150 KiB") for line in lines)
    for name in (" lean ", " with recomputation "):
        assert any(line.startswith(name) for line in lines)
    assert max(map(len, lines[1:])) <= 80


def test_the_largest_batches(graphs: list[str], model: GraphModel) -> None:
    memory = 150 * KIB
    largest = figures("fit", *graphs, "--budget", memory)["largest"]
    found = largest["lean"]
    batch = found["batch"]
    assert lean_peak(batch) + retained(batch) <= memory < lean_peak(batch + 1) + retained(batch + 1)
    assert found["peak"] == found["lean_peak"] == lean_peak(batch)
    assert (found["extra_share"], found["total"]) == (0, found["peak"] + retained(batch))

    best = largest["scheduled"]
    assert best["batch"] > 1.3 * batch
    assert best["total"] <= memory
    assert best["extra_seconds"] > 0
    above = model.at(best["batch"] + 1)
    with pytest.raises(BudgetError):
        schedule(above, memory - above.resident_bytes)


@pytest.mark.parametrize("memory", [20_000, 60_000, 200_000])
def test_what_is_found_keeps_to_the_memory(memory: int, model: GraphModel) -> None:
    asked: list[int] = []
    step = largest_scheduled_batch(model, memory, 0, progress=asked.append)
    alone = largest_scheduled_batch(model, memory, 0, solver="lean")
    assert step is not None
    assert alone is not None
    assert check(step.graph, step.scheduled.schedule) == step.scheduled.peak <= memory
    assert step.batch >= alone.batch
    assert all(batch > alone.batch for batch in asked)
    assert np.array_equal(step.graph.size, model.at(step.batch).size)


def test_what_fits_lean_is_lean(model: GraphModel) -> None:
    # A step that nothing but its last operator fills: nothing can be recomputed.
    def one(batch: int) -> StepGraph:
        return StepGraph([[], [0]], [[0], [1]], [batch * KIB, 1], phase=[Phase.FORWARD, Phase.BACKWARD])

    step = largest_scheduled_batch(fit_graphs({1: one(1), 2: one(2)}), 7 * KIB + 1)
    assert step is not None
    assert (step.batch, step.scheduled, step.extra_share) == (7, step.lean, 0.0)


def test_predict_schedules_is_never_above_lean(model: GraphModel) -> None:
    step = predict_schedules(model, 3, time_limit=0.0)
    assert step.scheduled.peak <= step.lean.peak == lean_peak(3)


def test_nothing_fits_is_bad_news(graphs: list[str]) -> None:
    for memory in (retained(1) - 1, retained(1) + 100):
        result = stowplan("fit", *graphs, "--budget", memory, "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout)["largest"] == {"lean": None, "scheduled": None}
        assert (
            result.stderr
            == f"Error: not even a batch of 1 fits {memory} bytes, {retained(1)} of them retained\n"
        )
    assert " lean                  none" in stowplan("fit", *graphs, "--budget", 1).output


def test_a_profile_among_graphs(graphs: list[str], tmp_path: Path) -> None:
    path = tmp_path / "step.profile"
    Profile([8], [0], [1], period=2).save(path)
    said = refused("fit", *graphs, f"8={path}", "--batch", 16)
    assert f"{tmp_path / '2.graph'} is a step graph, {path} is none; expected profiles alone" in said


def test_an_alignment_of_graphs(graphs: list[str]) -> None:
    assert "step graphs; expected no --alignment" in refused("fit", *graphs, "--alignment", 64)


def test_a_budget_with_profiles_is_their_memory(tmp_path: Path) -> None:
    arguments = []
    for batch in (2, 4):
        Profile([batch * KIB], [0], [1], period=2).save(tmp_path / f"{batch}.profile")
        arguments.append(f"{batch}={tmp_path / f'{batch}.profile'}")
    found = [figures("fit", *arguments, option, "10KiB") for option in ("--memory", "--budget")]
    assert found[0] == found[1]
    assert found[0]["largest"]["batch"] == 10


def test_steps_that_do_not_grow() -> None:
    with pytest.raises(GraphError, match="no value grows with the batch"):
        largest_scheduled_batch(fit_graphs({1: layers(2), 2: layers(2)}), 10**6, solver="lean")
    # What grows is never alive.
    unused = [StepGraph([[]], [[0]], [1, size]) for size in (1, 2)]
    with pytest.raises(GraphError, match="expected values in use that grow with the batch"):
        largest_scheduled_batch(fit_graphs({1: unused[0], 2: unused[1]}), 10**6)


def test_other_steps_are_refused(graphs: list[str], tmp_path: Path) -> None:
    StepGraph([[]], [[0]], [1], label=["alone"]).save(tmp_path / "other.graph")
    said = refused("fit", graphs[0], f"4={tmp_path / 'other.graph'}")
    assert said.startswith("Error: the steps at batches 2 and 4 differ at operator 0: draw0, which reads []")
