"""The command line: in this process through click, and once as a program."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import Profile, __version__
from stowplan.packing import Problem, check, solvers

from ..children import printed, python
from .command_line import refused, stowplan

GOOD = "id,lower,upper,size\na,0,4,4\nb,2,6,8\nc,4,8,4\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.csv"
    path.write_text(GOOD)
    return path


def test_version() -> None:
    result = stowplan("--version")
    assert (result.exit_code, result.output) == (0, f"main {__version__}\n")
    assert printed("-m", "stowplan", "--version") == f"stowplan {__version__}\n"


def test_pack_prints_the_result(problem: Path) -> None:
    result = stowplan("pack", problem)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith(f"{problem}: 3 blocks, solver ")
    assert [line.split() for line in lines if line.startswith((" lower", " arena"))] == [
        ["lower", "bound", "12", "B"],
        ["arena", "12", "B"],
    ]
    assert lines[-1] == "optimal: the blocks alive at tick 2 need 12 bytes"


def test_pack_places_the_step_of_a_profile(tmp_path: Path) -> None:
    step = Profile([100, 900, 200], [0, 1, 3], [5, 2, 4], period=6)
    step.save(tmp_path / "step.profile")
    done = stowplan("pack", tmp_path / "step.profile", "-o", tmp_path / "answer.csv")
    assert done.output.splitlines()[-1].startswith("optimal: the blocks alive at tick 1 need 1536 bytes")
    assert (tmp_path / "answer.csv").read_text().splitlines()[2].startswith("1,1,2,1024,")


def test_pack_says_that_ends_are_inclusive(problem: Path, tmp_path: Path) -> None:
    ends = tmp_path / "ends.csv"
    ends.write_text(problem.read_text().replace("upper", "end", 1))
    assert "column 'end': the last tick of each lifetime, inclusive" in stowplan("pack", ends).output
    assert "inclusive" not in stowplan("pack", problem).output


def test_pack_as_a_program_prints_one_json_object(problem: Path) -> None:
    done = python("-m", "stowplan", "pack", problem, "--json", "--solver", "best_fit")
    figures = json.loads(done.stdout)
    assert figures.pop("seconds") >= 0
    assert figures.pop("witness") == "the blocks alive at tick 2 need 12 bytes"
    bounds = {"n": 3, "peak": 12, "lower_bound": 12, "optimal": True}
    assert figures == {**bounds, "status": "optimal", "solver": "best_fit"}
    assert done.stderr == ""


def test_pack_compares_all_solvers(problem: Path, tmp_path: Path) -> None:
    answer = tmp_path / "answer.csv"
    result = stowplan("pack", problem, "--compare", "-o", answer)
    assert result.exit_code == 0
    for name in (*solvers, "auto"):
        assert any(line.startswith(f" {name} ") for line in result.output.splitlines())
    check(Problem.from_csv(problem), Problem.from_csv(answer).fixed)
    figures = json.loads(stowplan("pack", problem, "--compare", "--json").output)
    assert {row["name"] for row in figures["solvers"]} == {*solvers, "auto"}
    assert figures["peak"] == min(row["peak"] for row in figures["solvers"] if "peak" in row)


def test_pack_says_that_a_capacity_is_infeasible(problem: Path, tmp_path: Path) -> None:
    answer = tmp_path / "answer.csv"
    result = stowplan("pack", problem, "--capacity", 11, "-o", answer)
    assert result.exit_code == 1
    assert "a capacity of 11 bytes is below the lower bound of 12: the blocks" in result.stderr
    assert not answer.exists()


def test_pack_says_that_it_found_nothing_within_a_capacity(tmp_path: Path) -> None:
    # Best fit: 90. The lower bound, 80, can be reached.
    path = tmp_path / "medium.csv"
    path.write_text("id,lower,upper,size\na,0,2,10\nb,1,3,20\nc,2,4,30\nd,3,5,40\ne,0,2,50\n")
    result = stowplan("pack", path, "--capacity", 85, "--solver", "best_fit")
    assert result.exit_code == 1
    assert "no placement within 85 bytes was found" in result.stderr
    assert stowplan("pack", path, "--capacity", 85, "--time-limit", 5).exit_code == 0


def test_pack_refuses_an_unknown_solver(problem: Path, tmp_path: Path) -> None:
    answer = tmp_path / "answer.csv"
    said = refused("pack", problem, "--solver", "magic", "-o", answer)
    assert "no solver named 'magic'; expected one of: " in said
    assert not answer.exists()


def test_pack_refuses_files_that_cannot_be_opened(problem: Path, tmp_path: Path) -> None:
    assert "missing.csv" in refused("pack", tmp_path / "missing.csv")
    assert "there is no folder" in refused("pack", problem, "-o", tmp_path / "missing" / "answer.csv")


@pytest.mark.parametrize(
    "arguments",
    [["--model", "lenet"], ["--batch", "0"], ["--steps", "3"], ["--seed", "-1"], ["--batch", "two"]],
)
def test_demo_refuses_bad_options(arguments: list[str]) -> None:
    assert arguments[0] in refused("demo", *arguments)


def test_demo_without_chainer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.delitem(sys.modules, "chainer", raising=False)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: None if name == "chainer" else find(name, *of)
    )
    assert refused("demo").startswith("Error: chainer is not installed; expected: echo 'setuptools<81'")


@pytest.fixture
def tiny_alexnet(chainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In AlexNet's place, a network whose steps take no time."""
    from stowplan.insight.demo.models import NETWORKS

    class Tiny(chainer.Chain):
        insize = 16

        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.convolution = chainer.links.Convolution2D(3, 8, 3)
                self.classes = chainer.links.Linear(8 * 14 * 14, 1000)

        def forward(self, x: Any, t: Any) -> Any:
            h = chainer.functions.relu(self.convolution(x))
            return chainer.functions.softmax_cross_entropy(self.classes(chainer.functions.dropout(h)), t)

    monkeypatch.setitem(NETWORKS, "alexnet", Tiny)


@pytest.mark.usefixtures("tiny_alexnet")
def test_demo_for_programs() -> None:
    result = stowplan("demo", "--model", "alexnet", "--batch", "1", "--steps", "5", "--json")
    assert result.exit_code == 0, result.exception
    figures = json.loads(result.stdout)
    lean = figures["lean"]
    for found in (figures, lean):
        assert found["upstream"] == 0
        assert found["replayed"] == 2 * found["blocks"] > 0
        assert found["arena"] == found["lower_bound"] <= figures["arena"]
    assert figures["cupy_pool"] >= figures["planned_peak"] > 0
    assert figures["default"]["losses"] == figures["pool"]["losses"] == lean["losses"]
    rounds = zip(figures["pool"]["seconds"][3:], figures["default"]["seconds"][3:], strict=True)
    assert figures["pool"]["over_default"]["median"] == pytest.approx(sum(a / b for a, b in rounds) / 2)
    assert "identical: 5 losses" in stowplan("demo", "--model", "alexnet", "--batch", 1, "--steps", 5).stdout


@pytest.mark.usefixtures("tiny_alexnet")
def test_difference_is_bad_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is not bit-identical is shown as such and ends with exit status 1."""
    from stowplan.insight.demo.training import Run, Training

    right = Training.run

    def wrong(training: Training) -> Run:
        run = right(training)
        name = next(name for name in sorted(run.state) if run.state[name].size)
        # The first run of them is right; of one value the second differs in a bit, the third in another.
        run.state[name].reshape(-1).view(np.uint8)[0] ^= len(runs)
        runs.append(name)
        return run

    runs: list[str] = []
    monkeypatch.setattr(Training, "run", wrong)
    result = stowplan("demo", "--model", "alexnet", "--batch", "1", "--steps", "4")
    assert result.exit_code == 1, result.exception
    assert f"NOT bit-identical: the runs differ in the values of {runs[0]}" in result.stdout
