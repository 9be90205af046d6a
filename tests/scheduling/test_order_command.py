"""``stowplan order``, and its picture."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from stowplan.scheduling import Schedule, StepGraph, simulate

from ..stowplan.command_line import refused, stowplan
from .reference.order import layered

OPGRAPH = {
    "format": "opgraph-1",
    "name": "small",
    "resident": [{"id": 0, "bytes": 2048, "kind": "parameter", "name": "W"}],
    "nodes": [
        {"name": f"make{i}", "op": "conv", "phase": "forward", "inputs": [0], "in_place": False,
         "outputs": [{"id": 1 + i, "bytes": 1000, "alias_of": None}]}
        for i in range(3)
    ] + [
        {"name": f"use{i}", "op": "sum", "phase": "forward", "inputs": [1 + i], "in_place": False,
         "outputs": [{"id": 4 + i, "bytes": 8, "alias_of": None}]}
        for i in range(3)
    ],
    "outputs": [4, 5, 6],
}  # fmt: skip


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "small.json.gz"
    path.write_bytes(gzip.compress(json.dumps(OPGRAPH).encode()))
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
    result = stowplan("order", graph, "--json", "--solver", solver)
    figures = json.loads(result.stdout)
    assert list(figures) == ["n", "before", "peak", "lower_bound", "optimal", "solver", "seconds", "order"]
    assert sorted(figures["order"]) == list(range(6))
    assert (figures["n"], figures["before"], figures["peak"]) == (6, 3008, 1024)
    assert figures["optimal"] == (solver != "greedy")  # its bound looks at one operator at a time
    assert figures["seconds"] > 0


def test_the_order_is_written_as_a_schedule(tmp_path: Path) -> None:
    path, written = tmp_path / "layers.graph", tmp_path / "order.json"
    layered(40, 90, 6, 1).save(path)
    result = stowplan("order", path, "-o", written, "--json")
    figures, step = json.loads(result.stdout), StepGraph.load(path)
    schedule = Schedule.load(written, step)
    assert schedule.order.tolist() == figures["order"]
    assert simulate(step, schedule).peak == figures["peak"] < figures["before"]


def test_what_is_not_proved_says_how_far_it_can_be_off(tmp_path: Path) -> None:
    path = tmp_path / "layers.graph"
    layered(300, 700, 30, 0).save(path)
    assert "above the optimum" in stowplan("order", path, "--time-limit", 0).output
    assert json.loads(stowplan("order", path, "--time-limit", 0, "--json").stdout)["optimal"] is False


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"nothing", "neither a step graph nor JSON"), (b"[]", "expected 'opgraph-1'"), (b"\x1f\x8b12", "gzip")],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path, content: bytes, expected: str) -> None:
    path, written = tmp_path / "bad.json", tmp_path / "order.json"
    path.write_bytes(content)
    (line,) = refused("order", path, "-o", written).splitlines()
    assert line.startswith(f"Error: {path}: ")
    assert expected in line
    assert not written.exists()


def test_an_unknown_solver_is_bad_input(graph: Path) -> None:
    said = refused("order", graph, "--solver", "best")
    assert "there is no solver named 'best'; expected one of: auto, exact, greedy, ilp, local" in said


def test_a_shell_completes_the_solvers() -> None:
    from stowplan.cli.commands.order import order as command

    (option,) = [p for p in command.params if p.name == "solver"]
    offered = option.type.shell_complete(None, option, "e")  # type: ignore[arg-type]
    assert [item.value for item in offered] == ["exact"]
