"""``stowplan schedule``: what it prints for people and for programs, writes and draws, and how it ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stowplan.common.units import human_bytes
from stowplan.profiler import Profile
from stowplan.scheduling import Schedule, Way, as_recorded, lean, simulate
from stowplan.scheduling.bounds import bound_schedules
from stowplan.scheduling.check import check
from stowplan.scheduling.peak_explanation import alive_at_peak
from stowplan.scheduling.solve import curve
from stowplan.scheduling.solve import schedule as solve

from .command_line import figures, refused, stowplan
from .step_graphs import LAYERS, layers


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "step.graph"
    layers().save(path)
    return path


STEP = layers()
LEAN = simulate(STEP, lean(STEP)).peak
RESIDENT = STEP.resident_bytes


# ------------------------------------------------------------------------------------------------------------ the curve


def test_the_curve_for_programs(graph: Path) -> None:
    found = figures("schedule", graph, "--points", 5)
    rows = found.pop("curve")
    assert (found["operators"], found["values"]) == (4 * LAYERS + 1, STEP.values)
    assert found["step_seconds"] == pytest.approx(float(STEP.seconds.sum()))
    assert not found["assumed_seconds"]
    assert found["resident"] == found["retained"] == RESIDENT
    assert found["recorded_peak"] == simulate(STEP, as_recorded(STEP)).peak
    assert (found["lean_peak"], found["lower_bound"]) == (LEAN, bound_schedules(STEP))
    expected = curve(STEP, 5)
    assert [(row["peak"], row["extra_seconds"]) for row in rows] == [
        (s.peak, s.extra_seconds) for s in expected
    ]
    assert rows[0]["extra_seconds"] == 0
    assert rows[0]["of_lean"] == 1
    assert rows[0]["dropped"] == {"values": 0, "bytes": 0}
    for row in rows:
        assert row["budget"] == row["peak"] + RESIDENT
        assert row["extra_share"] == pytest.approx(row["extra_seconds"] / found["step_seconds"])
    assert any(row["dropped"]["values"] for row in rows)
    assert any(row["packed"]["values"] for row in rows)


def test_the_curve_for_people(graph: Path) -> None:
    result = stowplan("schedule", graph, "--points", 4)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith(f"{graph}: {len(STEP)} operators, {STEP.values} values, ")
    assert any(line.startswith(" lean ") and human_bytes(LEAN) in line for line in lines)
    for solution in curve(STEP, 4):
        assert sum(f" {solution.peak + RESIDENT:,} " in line for line in lines) == 1
    assert max(map(len, lines[1:])) <= 80
    assert "swapped" not in result.output  # a column without a number


def test_a_graph_without_seconds_gets_some(tmp_path: Path) -> None:
    path = tmp_path / "step.graph"
    layers(seconds=False).save(path)
    found = figures("schedule", path, "--points", 3)
    assert found["assumed_seconds"]
    assert found["curve"][-1]["extra_seconds"] > 0
    assert "The graph has no seconds: " in stowplan("schedule", path, "--points", 3).output


# ------------------------------------------------------------------------------------------------------------ a budget


def test_a_schedule_for_a_budget(graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "schedule.json"
    budget = int(0.7 * LEAN) + RESIDENT
    found = figures("schedule", graph, "--budget", budget, "-o", out)
    written = Schedule.load(out, STEP)
    expected = solve(STEP, budget - RESIDENT)
    assert found["budget"] == budget
    assert found["schedule"]["peak"] == check(STEP, written) == expected.peak <= budget - RESIDENT
    assert found["schedule"]["extra_seconds"] == simulate(STEP, written).extra_seconds
    changed = written.way != as_recorded(STEP).way
    for key, way in (("dropped", Way.DROPPED), ("packed", Way.PACKED), ("swapped", Way.SWAPPED)):
        values = np.flatnonzero(changed & (written.way == way))
        listed = found["listed"][key]
        assert len(listed) == min(len(values), 10)
        assert {value["name"] for value in listed} <= {STEP.name[v] for v in values}
        assert found["schedule"][key] == {"values": len(values), "bytes": STEP.size[values].sum()}
    peak = found["at_peak"]
    alive = alive_at_peak(STEP, written)
    assert (peak["values"], peak["workspace"]) == (len(alive.storages), alive.workspace)
    assert [(value["name"], value["bytes"]) for value in peak["alive"]] == [
        (STEP.name[v], size) for v, size in alive.storages[:10]
    ]
    shown = stowplan("schedule", graph, "--budget", budget).output
    assert ("Dropped: " in shown, "Packed: " in shown, "Swapped: " in shown) == (True, True, False)


def test_swapping(graph: Path) -> None:
    budget = int(0.7 * LEAN) + RESIDENT
    without, with_it = (figures("schedule", graph, "--budget", budget, *more) for more in ((), ("--swap",)))
    assert without["schedule"]["swapped"]["values"] == 0
    assert with_it["schedule"]["swapped"]["values"] > 0
    assert with_it["schedule"]["extra_seconds"] < without["schedule"]["extra_seconds"]


@pytest.mark.parametrize("budget", [1, RESIDENT + bound_schedules(STEP) // 2])
def test_a_budget_that_nothing_keeps_to(budget: int, graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "schedule.json"
    result = stowplan("schedule", graph, "--budget", budget, "-o", out)
    assert result.exit_code == 1
    assert result.stdout == ""
    start, _, rest = result.stderr.partition(": the least that was found is ")
    assert start == f"Error: {graph}: a step cannot keep to {budget:,} bytes"
    least = int(rest.split(", ")[0].replace(",", ""))
    said, _, floor = rest.partition("; ")
    assert said == f"{least:,}, {RESIDENT:,} of them retained"
    assert floor.startswith("the least is reached where ")
    assert bound_schedules(STEP) + RESIDENT <= least < LEAN + RESIDENT
    assert not out.exists()
    assert figures("schedule", graph, "--budget", least)["schedule"]["budget"] == least


# ---------------------------------------------------------------------------------------------------- input


def test_a_profile_is_no_graph(tmp_path: Path) -> None:
    path = tmp_path / "step.profile"
    Profile([8], [0], [1], period=2).save(path)
    assert refused("schedule", path) == (
        f"Error: {path}: a profile, which has blocks and no operators; expected a step graph: record one with stowplan "
        "profile --graph step.graph SCRIPT\n"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-o", "x.json"], "-o writes one schedule; expected a --budget"),
        (["--points", "3", "--budget", "1MiB"], "--points are those of the curve"),
        (["--points", "1"], "1 is not in the range"),
        (["--budget", "much"], "'much'; expected bytes"),
        (["--budget", "1MiB", "--solver", "none"], "no solver named 'none'; expected one of: auto, "),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], expected: str, graph: Path) -> None:
    assert expected in refused("schedule", graph, *arguments)
