"""``stowplan convert``: what it reads and writes is tested with the formats; here, what the command adds."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stowplan.profiler import formats

from .command_line import refused, stowplan

PROBLEM = "id,lower,upper,size\na,0,4,4000\nb,2,6,8000\nc,4,8,4000\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.csv"
    path.write_text(PROBLEM)
    return path


def test_the_plan_is_made_where_places_are_shown(problem: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan.txt"
    assert stowplan("convert", problem, target, "--to", "torch", "--solver", "best_fit").exit_code == 0
    snapshot = pickle.loads(target.read_bytes())  # our own file
    assert snapshot["segments"][0]["total_size"] == 4096 + 8192


def test_the_help_lists_the_formats() -> None:
    shown = stowplan("convert", "--help").output
    for form in formats.registered():
        assert f"{form.name}: " in shown
        assert all(suffix in shown for suffix in form.suffixes)


def test_an_unknown_format_is_refused_with_those_known(problem: Path, tmp_path: Path) -> None:
    target = tmp_path / "step.profile"
    said = refused("convert", problem, target, "--from", "json")
    assert "no format 'json' that can be read; expected " in said
    said = refused("convert", problem, target, "--to", "rmm")
    assert "no format 'rmm' that can be written; expected " in said
    assert "the format 'chrome' was removed; expected torch" in refused("convert", problem, "plan.json")
    problem.write_text("Dear diary\n")
    said = refused("convert", problem, target)
    assert "problem.csv: a text file, of no format that can be read; expected " in said
    assert not target.exists()


def test_bad_input_writes_nothing(problem: Path, tmp_path: Path) -> None:
    said = refused("convert", problem, tmp_path / "plan.tar")
    assert "plan.tar: the suffix '.tar' names no format; expected .csv, " in said
    problem.write_text("id,lower,upper\n")
    said = refused("convert", problem, tmp_path / "step.profile")
    assert "problem.csv, line 1: the column 'size' is missing" in said
    said = refused("convert", problem, tmp_path / "plan.profile", "--from", "torch")
    assert "the pickle has the instruction" in said
    assert [path.name for path in tmp_path.iterdir()] == ["problem.csv"]
