"""``stowplan fit --device``: recorded CPU steps in the models of a device's pools, against the larger step recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stowplan import NumpyRecorder, Profile
from stowplan.insight.comparison import compare
from stowplan.insight.on_device import FITS, NOT, POOLS, TOO_CLOSE, UNKNOWN, verdict_of, ways

from .command_line import figures, refused, stowplan
from .step_graphs import layers

GIB = 1 << 30


def recorded(batch: int) -> Profile:
    """Return a step whose blocks grow from one to the next, so that an online pool keeps what it cannot use again."""
    recorder = NumpyRecorder()
    weights = np.ones(1000)
    with recorder:
        for _ in range(3):
            with recorder.step():
                kept = np.ones(1000 * batch)
                for k in range(1, 6):
                    grown = np.ones(1000 * k * batch)
                    del grown
                del kept
    del weights
    return recorder.profile()


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for batch in (2, 4):
        recorded(batch).save(tmp_path / f"{batch}.profile")
        layers(batch).save(tmp_path / f"{batch}.graph")
    return [f"{batch}={tmp_path / f'{batch}.profile'}" for batch in (2, 4)]


@pytest.fixture
def graphs(files: list[str]) -> list[str]:
    return [file.replace(".profile", ".graph") for file in files]


def test_pools_reserve_what_the_larger_step_takes(files: list[str]) -> None:
    (found,) = figures("fit", *files, "--batch", 16, "--device", "cuda:24GiB", "--retained", "1MiB")[
        "predictions"
    ]
    real = compare(recorded(16), alignment=512, pools=POOLS)
    steps = {way["name"]: way["step"] for way in found["ways"]}
    assert steps == {name: use.reserved_peak for name, use in real.pools.items()} | {
        "plan": real.plan.arena_bytes
    }
    assert all(way["total"] == way["step"] + 2**20 for way in found["ways"])
    assert (found["verdict"], found["pool"], found["remedies"]) == (FITS, "cupy", [])


def test_verdicts_leave_room_for_the_unknown() -> None:
    memory = 4 * GIB
    assert verdict_of(memory - UNKNOWN, memory) == FITS
    assert verdict_of(memory - UNKNOWN + 1, memory) == TOO_CLOSE
    assert verdict_of(memory, memory) == TOO_CLOSE
    assert verdict_of(memory + 1, memory) == NOT


def test_a_plan_changes_the_answer(files: list[str]) -> None:
    (found,) = figures("fit", *files, "--batch", 200_000, "--device", "cuda:12GiB", status=1)["predictions"]
    by_name = {way["name"]: way for way in found["ways"]}
    assert by_name["cupy"]["total"] > 12 * GIB > by_name["plan"]["total"] + UNKNOWN
    assert (found["verdict"], found["remedies"]) == (NOT, ["plan"])
    result = stowplan("fit", *files, "--batch", 200_000, "--device", "cuda:12GiB")
    assert "does not fit with CuPy's pool" in result.output
    assert "Makes it fit: stowplan's plan (fits)" in result.output
    assert "workspaces of cuDNN" in result.output


def test_schedules_are_remedies(graphs: list[str], files: list[str]) -> None:
    batch = 200_000
    of_graph = {way.name: way for way in ways(None, layers(batch), 1 << 50, 0)}
    lean = of_graph["lean"]
    memory = lean.total - 1  # lean does not fit, and half of it does, by recomputation
    (found,) = figures("fit", *graphs, *files, "--batch", batch, "--device", f"cuda:{memory}B", status=1)[
        "predictions"
    ]
    by_name = {way["name"]: way for way in found["ways"]}
    assert by_name["lean"]["verdict"] == NOT
    assert by_name["budget"]["verdict"] == FITS
    assert by_name["budget"]["extra_share"] > 0
    assert "budget" in found["remedies"]
    (alone,) = figures("fit", *graphs, "--batch", batch, "--device", f"cuda:{memory}B", status=1)[
        "predictions"
    ]
    assert [way["name"] for way in alone["ways"]] == ["lean", "budget"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "24GiB", "--batch", "8"], "expected cuda:MEMORY"),
        (["--device", "cuda:much", "--batch", "8"], "expected cuda:MEMORY"),
        (["--device", "cuda:1GiB"], "expected --batch"),
        (["--device", "cuda:1GiB", "--batch", "8", "--memory", "1GiB"], "expected no --memory"),
        (["--device", "cuda:1GiB", "--batch", "8", "--ranks", "2"], "expected both or neither"),
        (
            ["--device", "cuda:1GiB", "--batch", "8", "--ranks", "2", "--parallel", "tensor"],
            "no number tensor",
        ),
    ],
)
def test_what_it_cannot_use_is_refused(files: list[str], options: list[str], message: str) -> None:
    assert message in refused("fit", *files, *options)


def test_older_blocks_count_as_retained(tmp_path: Path) -> None:
    for batch in (2, 4):
        recorder = NumpyRecorder()
        with recorder:
            weights = np.ones(100_000)
            for _ in range(3):
                with recorder.step():
                    kept = np.ones(1000 * batch)
                    del kept
            del weights
        recorder.profile().save(tmp_path / f"{batch}.profile")
    files = [f"{batch}={tmp_path / f'{batch}.profile'}" for batch in (2, 4)]
    assert figures("fit", *files, "--batch", 8, "--device", "cuda:2GiB")["retained"] // 1000 == 800


def test_older_and_escaped_blocks_are_added_where_both_are_alive(tmp_path: Path) -> None:
    # 5 MiB older, which go; then 3 MiB escape. Of the batch's blocks, 1 MiB an item, none is alive then.
    for batch in (2, 4):
        size, alive = np.array([batch, 3]) << 20, np.array([5 + batch, 3]) << 20
        step = Profile(size, [0, 2], [1, -1], period=3, alive=alive)
        step.save(tmp_path / f"{batch}.profile")
    files = [f"{batch}={tmp_path / f'{batch}.profile'}" for batch in (2, 4)]
    found = figures("fit", *files, "--batch", 8, "--device", "cuda:2GiB")
    assert found["retained"] == 5 << 20
    assert {way["total"] - way["step"] for way in found["predictions"][0]["ways"]} == {5 << 20}
