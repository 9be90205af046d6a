"""``stowplan fit``: batch, memory, device, and what cannot be told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stowplan import Profile
from stowplan.insight.on_device import NOT, UNKNOWN

from .command_line import figures, refused, stowplan
from .step_graphs import layers
from .test_memory_commands import step

KIB, GIB = 1 << 10, 1 << 30
BATCHES = (2, 3, 4)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return saved(tmp_path, step)


def saved(folder: Path, made: Callable[[int], Profile], batches: tuple[int, ...] = BATCHES) -> list[str]:
    """Write profiles, and return them as the command takes them."""
    for batch in batches:
        made(batch).save(folder / f"{batch}.profile")
    return [f"{batch}={folder / f'{batch}.profile'}" for batch in batches]


# -------------------------------------------------------------------------------------------------------------- batches


def test_the_profile_of_a_batch_is_written(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "eight.profile"
    found = figures("fit", *files, "--batch", 8, "-o", out, "--retained", "1KiB")
    assert (found["batches"], found["cannot_tell"], found["retained"]) == ([2, 3, 4], "", 1024)
    assert (found["predictions"][0]["optimal"], found["predictions"][0]["extrapolated"]) == (True, None)
    assert Profile.load(out).same_blocks(step(8))


def test_without_a_wish_doublings(files: list[str]) -> None:
    rows = figures("fit", *files)["predictions"]
    assert {row["batch"]: row["extrapolated"] for row in rows} == {8: None, 16: None, 32: None, 64: 16}
    lines = stowplan("fit", *files).output.splitlines()
    assert lines[0] == "5 blocks, 5 of them fitted from batches 2 and 4; checked at 3: 0.000% off"
    assert [line.split()[0] for line in lines if line[1:2].isdigit()] == ["8", "16", "32", "64"]
    assert lines[-2:] == [
        "Batch 64: extrapolated, 16.0 times beyond what was recorded",
        "Retained: not recorded, and taken as 0; --retained says it",
    ]


# --------------------------------------------------------------------------------------------------------------- memory


def test_the_largest_batch_is_the_last_that_fits(files: list[str]) -> None:
    # The peak is at tick 1: 3 * batch + 16 KiB. Of 100 KiB 1 is retained and 1 escapes: batch 27 needs 99.
    found = figures("fit", *files, "--memory", "100KiB", "--retained", "1KiB")
    assert (found["memory"], found["largest"]["batch"], found["largest"]["arena"]) == (102400, 27, 97 * KIB)
    assert found["predictions"] == []
    assert figures("fit", *files, "--budget", "100KiB", "--retained", "1KiB") == found
    result = stowplan("fit", *files, "--memory", "100KiB", "--retained", "1KiB")
    assert "The largest batch within 100 KiB: 27" in result.output
    assert figures("fit", *files, "--memory", "120KiB")["largest"]["extrapolated"] == 34 / 4


def test_nothing_fits_is_bad_news(files: list[str]) -> None:
    result = stowplan("fit", *files, "--memory", "10KiB", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["largest"] is None
    assert "not even a batch of 1 fits 10240 bytes, 1024 of which are kept beside its plan" in result.stderr


def test_what_does_not_grow_has_no_largest(tmp_path: Path) -> None:
    same = saved(tmp_path, lambda batch: step(4))
    assert "expected profiles of blocks that grow with the batch" in refused("fit", *same, "--memory", "1GiB")


# --------------------------------------------------------------------------------------------------------------- device


def growing(batch: int) -> Profile:
    """A step whose blocks grow from one to the next, so that an online pool keeps what it cannot use again."""
    size = 8000 * batch * np.array([1, *range(1, 6)])
    return Profile(size, [0, 1, 3, 5, 7, 9], [11, 2, 4, 6, 8, 10], period=12)


def test_a_plan_changes_the_answer(tmp_path: Path) -> None:
    arguments = ("fit", *saved(tmp_path, growing), "--batch", 200_000, "--device", "cuda:12GiB")
    (found,) = figures(*arguments, status=1)["predictions"]
    by_name = {way["name"]: way for way in found["ways"]}
    assert by_name["cupy"]["total"] > 12 * GIB > by_name["plan"]["total"] + UNKNOWN
    assert (found["verdict"], found["remedies"]) == (NOT, ["plan"])
    result = stowplan(*arguments)
    assert "does not fit with CuPy's pool" in result.output
    assert "Makes it fit: stowplan's plan (fits)" in result.output
    assert "Batch 200,000: extrapolated, 50,000.0 times beyond what was recorded" in result.output
    assert "workspaces of cuDNN" in result.output


# ------------------------------------------------------------------------------------------------- what is not answered


@pytest.mark.parametrize("asked", [["--batch", "8", "-o", "x.profile"], ["--memory", "1MiB"], []])
def test_where_it_cannot_tell_there_is_no_answer(
    files: list[str], asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = stowplan("fit", *files[1:], *asked)
    assert result.exit_code == 1
    assert result.stdout == "5 blocks, 5 of them fitted from batches 3 and 4\n"
    assert result.stderr.startswith("Error: cannot tell: two batch sizes check no formula")
    assert not (tmp_path / "x.profile").exists()
    result = stowplan("fit", *files[1:], *asked, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["predictions"], found.get("largest")) == (1, [], None)
    assert found["cannot_tell"].startswith("two batch sizes check no formula")


def plate(batch: int) -> Profile:
    """A grid with a border of one: its size is a square beside an affine part."""
    size = np.array([8 * batch**2, 8 * (batch + 2) ** 2, 8 * batch**2])
    return Profile(size, [0, 1, 2], [5, 4, 3], period=6)


@pytest.mark.parametrize(
    "asked", [["--batch", "1500"], ["--memory", "1GiB"], ["--batch", "1500", "--device", "cuda:9GiB"]]
)
def test_what_follows_no_formula_is_not_answered(asked: list[str], tmp_path: Path) -> None:
    result = stowplan("fit", *saved(tmp_path, plate, (300, 310, 400)), *asked)
    assert result.exit_code == 1
    assert "fits" not in result.output
    assert "largest" not in result.stdout
    assert (
        "are uncertain: the profiles check no formula of 1 of 3 blocks, like request 1 (1292832 bytes at 400)"
        in (" ".join(result.stderr.split()))
    )


ON_DEVICE = ["2={}", "4={}", "--device", "cuda:1GiB", "--batch", "8"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["2={}"], "1 profile; expected those of two or more batch sizes"),
        (["2={}", "2={}"], "two profiles of one batch size"),
        (["two={}", "4={}"], "expected BATCH=PROFILE"),
        (["0={}", "4={}"], "expected BATCH=PROFILE"),
        (["{}"], "expected BATCH=PROFILE"),
        (["2={}", "4={}", "--memory", "much"], "'much'; expected bytes, like 4096"),
        (["2={}", "4={}", "-o", "x.profile"], "expected one --batch, not 0"),
        (["2={}", "4={}", "--batch", "0"], "0 is not in the range"),
        (["2={}", "4={}", "--device", "24GiB", "--batch", "8"], "expected cuda:MEMORY"),
        (["2={}", "4={}", "--device", "cuda:much", "--batch", "8"], "expected cuda:MEMORY"),
        (["2={}", "4={}", "--device", "cuda:1GiB"], "expected --batch"),
        ([*ON_DEVICE, "--memory", "1GiB"], "expected no --memory"),
        ([*ON_DEVICE, "--alignment", "64"], "expected no --alignment"),
        (["words:2={}", "words:4={}"], "named shapes were removed; expected BATCH=PROFILE"),
        (["2={}", "4={}", "--at", "batch:8"], "--at was removed; expected --batch, and profiles that"),
        (["2={}", "4={}", "--ranks", "8"], "--ranks was removed; expected profiles of one rank"),
        (["2={}", "4={}", "--parallel", "data"], "--parallel was removed; expected profiles of one rank"),
    ],
)
def test_refuses_what_it_cannot_use(arguments: list[str], expected: str, tmp_path: Path) -> None:
    step(4).save(tmp_path / "step.profile")
    said = " ".join(refused("fit", *(one.format(tmp_path / "step.profile") for one in arguments)).split())
    assert expected in said


def test_step_graphs_are_refused(tmp_path: Path) -> None:
    layers(2).save(tmp_path / "2.graph")
    said = refused("fit", f"2={tmp_path / '2.graph'}", f"4={tmp_path / '2.graph'}", "--budget", "1GiB")
    assert f"{tmp_path / '2.graph'}: fit of step graphs was removed; expected a profile" in said
