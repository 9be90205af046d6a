"""``stowplan order``, and its picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.scheduling import Schedule, StepGraph, simulate

from ..stowplan.command_line import figures, stowplan
from .reference.order import layered


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """Three operators that make 1000 bytes each, which three others read; with a parameter of 2048."""
    reads, writes = [[0]] * 3 + [[1], [2], [3]], [[k] for k in range(1, 7)]
    size, kept = [2048, *[1000] * 3, *[8] * 3], [0] * 4 + [1] * 3
    path = tmp_path / "small.graph"
    StepGraph(reads, writes, size, resident=[1] + [0] * 6, kept=kept).save(path)
    return path


def test_the_table_has_before_after_and_the_bound(graph: Path) -> None:
    result = stowplan("order", graph)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith(f"{graph}: 6 operators, solver ")
    assert [line.split() for line in lines if line.startswith((" in the order", " lower"))] == [
        ["in", "the", "order", "recorded", "2.9", "KiB", "1.000"],
        ["in", "the", "order", "found", "1.0", "KiB", "0.340"],
        ["lower", "bound", "1.0", "KiB", "0.340"],
    ]
    assert lines[-1] == "optimal: no order has a smaller peak; resident tensors, not counted: 2.0 KiB"


@pytest.mark.parametrize("solver", ["auto", "exact", "greedy"])
def test_one_json_object_for_programs(graph: Path, solver: str) -> None:
    found = figures("order", graph, "--solver", solver)
    assert list(found) == ["n", "before", "peak", "lower_bound", "optimal", "solver", "seconds", "order"]
    assert sorted(found["order"]) == list(range(6))
    assert (found["n"], found["before"], found["peak"]) == (6, 3008, 1024)
    assert found["optimal"] == (solver != "greedy")  # its bound looks at one operator at a time
    assert found["seconds"] > 0


def test_the_order_is_written_as_a_schedule(tmp_path: Path) -> None:
    path, written = tmp_path / "layers.graph", tmp_path / "order.json"
    layered(40, 90, 6, 1).save(path)
    found, step = figures("order", path, "-o", written), StepGraph.load(path)
    schedule = Schedule.load(written, step)
    assert schedule.order.tolist() == found["order"]
    assert simulate(step, schedule).peak == found["peak"] < found["before"]


def test_what_is_not_proved_says_how_far_it_can_be_off(tmp_path: Path) -> None:
    path = tmp_path / "layers.graph"
    layered(300, 700, 30, 0).save(path)
    assert "above the optimum" in stowplan("order", path, "--time-limit", 0).output
    assert figures("order", path, "--time-limit", 0)["optimal"] is False
