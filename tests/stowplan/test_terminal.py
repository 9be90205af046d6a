"""What commands print of files and programs: nothing in it that a terminal would obey."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from stowplan import Profile
from stowplan.cli.main import main
from stowplan.cli.terminal import printable
from stowplan.profiler.program_summary import Holder, Program
from stowplan.scheduling import StepGraph

from ..children import stowplan as program
from ..scheduling.nets import chain_net

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b1m\u202e"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b1m\u202e"


def harmless(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def test_what_is_not_printable_is_escaped() -> None:
    assert printable(f"é → {EVIL}\n\tx\udcff") == f"é → {SHOWN}\n" + r"\tx\udcff"


def hostile(size: int) -> Profile:
    sites = (f"{EVIL}a.py:1 f > {EVIL}.py:2 g",)
    counts = Program(f"{EVIL}", 0, 1, size, size, holders=(Holder(sites[0], 1, size),), reserved=size)
    return Profile([size], [0], [1], period=2, site=[0], sites=sites, alive=[size], program=counts)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of several formats, with such names, and with more in them."""
    monkeypatch.chdir(tmp_path)
    for size in (1000, 1500, 2000):
        hostile(size).save(f"{EVIL}{size}")
    Path(f"{EVIL}.py").write_text(
        f"import numpy as np\nfor k in range(30): x = np.ones(3000); y = x + 1  # {EVIL[:-2]}\n",
        encoding="utf-8",
    )
    Path(f"{EVIL}.csv").write_text(f"id,lower,upper,size\n{EVIL},0,1,{EVIL}\n", encoding="utf-8")
    Path(f"{EVIL}.pickle").write_bytes(pickle.dumps({"device_traces": [[{"action": EVIL, "addr": EVIL}]]}))
    return tmp_path


@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        (0, ["show", EVIL + "1000"]),
        (0, ["compare", EVIL + "1000"]),
        (1, ["diff", EVIL + "1000", EVIL + "2000"]),
        (0, ["convert", EVIL + "1000", EVIL + ".csv"]),
        (0, ["report", EVIL + "1000", "-o", EVIL + ".html", "--title", "x"]),
        (0, ["fit", *(f"{n}={EVIL}{n * 500}" for n in (2, 3, 4)), "--batch=8", "--device=cuda:9GiB"]),
        (1, ["fit", f"2={EVIL}1000", f"4={EVIL}2000", "--batch", "8"]),
        (2, ["show", EVIL + ".csv"]),
        (2, ["pack", EVIL + ".csv"]),
        (2, ["compare", EVIL + ".pickle"]),
        (2, ["show", EVIL + ".py"]),
        (2, ["schedule", EVIL]),
        (2, ["fit", EVIL]),
        (2, [EVIL]),
    ],
    ids=lambda value: value[0].replace(EVIL, "evil") if isinstance(value, list) else None,
)
def test_names_of_files_and_in_them(folder: Path, status: int, arguments: list[str]) -> None:
    if "-o" in arguments:
        pytest.importorskip(
            "bokeh", reason="bokeh is not installed; expected: pip install 'stowplan[report]'"
        )
    result = CliRunner().invoke(main, arguments, color=True)
    assert result.exit_code == status, result.output
    assert harmless(result.output), ascii(result.output)


@pytest.mark.parametrize("columns", [0, 5])
def test_no_number_loses_a_digit_in_a_terminal_however_narrow(
    folder: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    chain_net(12, 0).save("graph")

    def numbers(width: int, *words: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        return sorted(re.findall(r"[0-9][0-9.,]*", result.output))

    for words in (["show", f"{EVIL}1000"], ["compare", f"{EVIL}1000"], ["schedule", "graph"]):
        assert numbers(columns, *words) == numbers(200, *words)


def test_names_are_no_markup(tmp_path: Path) -> None:
    StepGraph([[]], [[0]], [1], label=["f[/g]"], name=["h[i] :boat:"]).save(tmp_path / "graph")
    result = CliRunner().invoke(main, ["schedule", str(tmp_path / "graph"), "--budget", "1MiB"])
    assert "f[/g] runs" in " ".join(result.output.split())
    assert " h[i] :boat: " in result.output


@pytest.mark.parametrize("target", [[EVIL + ".py"], ["-m", EVIL]], ids=["file", "module"])
def test_names_in_a_program(folder: Path, target: list[str]) -> None:
    for command in (["profile", "-o", EVIL], ["profile", "--graph", EVIL], ["run"]):
        done = program(*command, *target, folder=folder)
        assert done.stderr
        assert harmless(done.stderr), ascii(done.stderr)
    done = program("run", *target[:-1], "missing" + EVIL, folder=folder)
    assert done.returncode == 2
    assert harmless(done.stderr), ascii(done.stderr)
