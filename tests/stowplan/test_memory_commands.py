"""compare and show: what they print for people and for programs, and how they end."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest
from click.shell_completion import ShellComplete

from stowplan.cli.main import COMMANDS, main
from stowplan.insight.comparison import as_requested, compare
from stowplan.insight.pool_models import replay_malloc, requests
from stowplan.planning import make_plan
from stowplan.profiler import Profile
from stowplan.profiler.program_summary import Program
from stowplan.scheduling.registry import names

from .command_line import figures, piped, refused, stowplan

KIB = 1024
needs_mallinfo = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library's malloc cannot be asked"
)


def step(batch: int = 4, sites: tuple[str, ...] = ("train.py:3 forward", "train.py:9 backward")) -> Profile:
    """Two activations that grow with the batch; a gradient that does not and lives on; a parameter that escapes.

    ::

        tick      0    1    2    3    4    5    6
        block 0   [=========================)         batch KiB
        block 1        [====)                         2 batch KiB
        block 2                  [====)               2 batch KiB + 100 bytes
        block 3   =======)            [============   16 KiB, freed at tick 2 of the following step
        block 4                                 [--   1 KiB, never freed
    """
    return Profile(
        size=np.array([batch * KIB, 2 * batch * KIB, 2 * batch * KIB + 100, 16 * KIB, KIB]),
        start=[0, 1, 4, 6, 8],
        end=[7, 3, 5, 11, -1],
        period=9,
        **({"site": [0, 0, 1, -1, 1], "sites": sites} if sites else {}),  # type: ignore[arg-type]
    )


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "step.profile"
    step().save(path)
    return path


# At batch 4: blocks 0, 1 and 3 are alive at tick 1 (28 KiB); 0 and 2 at tick 4; 0 and 3 at tick 6 (20 KiB).
PLANNED_PEAK = 28 * KIB


@needs_mallinfo
def test_malloc_is_measured() -> None:
    use = replay_malloc(requests(as_requested(make_plan(step(), alignment=64))))
    assert use is not None
    assert use.live_peak == PLANNED_PEAK
    assert use.reserved_peak >= PLANNED_PEAK
    assert use.steady
    # Each block is mapped by itself.
    large = Profile(np.full(3, 10**8), np.arange(3), np.arange(3, 6), period=6)
    use = replay_malloc(requests(as_requested(make_plan(large, alignment=64))))
    assert use is not None
    assert 3 * 10**8 <= use.reserved_peak < 3.01 * 10**8


@needs_mallinfo
def test_what_malloc_gives_back_is_not_counted_beside_what_comes_later() -> None:
    program = Program("NumPy")
    step = Profile([10**8, 10**8], [0, 2], [1, -1], period=3, alive=[10**8, 10**8], program=program)
    found = compare(step, pools=("malloc", "cupy"))
    assert found.with_plan == 2 * 10**8
    assert found.saved("malloc") == pytest.approx(-1, abs=0.01)  # it has 10**8 mapped at any moment
    assert found.saved("cupy") == pytest.approx(0, abs=0.01)


def test_show_adds_up_what_the_table_leaves_out(profile: Path) -> None:
    rows = [line.split() for line in stowplan("show", profile, "--top", 1).output.splitlines()]
    assert ["unknown", "1", "16.0", "KiB", "57.1%"] in rows
    assert ["1", "other", "2", "12.0", "KiB", "42.9%"] in rows


def test_long_call_sites_are_whole_in_a_pipe_and_wrapped_on_a_terminal(tmp_path: Path) -> None:
    path, site = tmp_path / "step.profile", "/a" * 60 + "/model.py:3 forward"
    step(sites=(site, "b")).save(path)
    assert f" {site} " in piped("show", path, folder=tmp_path)
    table = stowplan("show", path, columns=80).output.partition("Planned peak")[2].partition("older:")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("/a") == 60


def test_call_sites_are_relative_to_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step.profile"
    step(sites=(f"{tmp_path}/model.py:3 forward", "b")).save(path)
    monkeypatch.chdir(tmp_path)
    assert " model.py:3 forward " in stowplan("show", path).output


def test_own_solvers_by_import(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from stowplan.packing import registry\n"
        "register = registry.register\n"
        "@register('of_mine')\n"
        "def of_mine(problem, options):\n"
        "    return registry.find('best_fit')(problem, options)\n"
    )
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,4\n")
    said = piped("--import", "mine", "pack", "p.csv", "--solver", "of_mine", folder=tmp_path)
    assert "solver of_mine" in said
    assert "No module named 'nothing_of_mine'" in stowplan("--import", "nothing_of_mine", "show", "x").output


@pytest.mark.parametrize("name", ["compare", "show"])
def test_a_step_without_blocks(name: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.profile"
    Profile([], [], []).save(path)
    assert stowplan(name, path).exit_code == 0
    assert figures(name, path)["arena"] == 0


@pytest.mark.parametrize("text", ["", "id,lower\n", "PK, but not a profile"])
@pytest.mark.parametrize(
    "command", [["advise"], ["compare"], ["show"], ["fit", "--batch", "8"], ["schedule"], ["order"], ["pack"]]
)
def test_bad_files_are_one_line(command: list[str], text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_text(text)
    arguments = [f"2={path}", f"4={path}"] if command[0] == "fit" else [path]
    (line,) = refused(*command, *arguments).splitlines()
    assert line.startswith(f"Error: {path}")
    failed = stowplan(*command, *arguments, "--json")
    assert (failed.exit_code, line) == (2, f"Error: {json.loads(failed.stdout)['error']}")


# --------------------------------------------------------------------------------------------------------- the command


def test_help_says_the_exit_status_and_gives_examples() -> None:
    text = stowplan("--help").output
    for line in ("Exit status:", "  0  done", "  1  completed with a negative result", "  2  bad input"):
        assert line in text
    for name in COMMANDS:
        assert f"Example: stowplan {name} " in stowplan(name, "--help").output, name
        (short,) = [line for line in text.splitlines() if line.startswith(f"  {name} ")]
        assert short == short.rstrip(".") + "."


def test_completion_offers_commands_options_and_solvers() -> None:
    def offered(arguments: list[str], incomplete: str) -> set[str]:
        found = ShellComplete(main, {}, "stowplan", "_STOWPLAN_COMPLETE").get_completions(
            arguments, incomplete
        )
        return {item.value for item in found}

    assert {"compare", "fit", "pack", "show"} <= offered([], "")
    assert offered(["compare"], "--al") == {"--alignment"}
    assert offered(["pack", "--solver"], "best_fit") == {"best_fit", "best_fit_orders"}
    assert offered(["order", "--solver"], "e") == {"exact"}
    assert offered(["schedule", "--solver"], "") == {"auto", *names()}
    assert offered(["convert", "--from"], "") == {"minimalloc", "profile", "torch", "rmm"}
    assert offered(["convert", "--to"], "") == {"minimalloc", "profile", "torch"}
