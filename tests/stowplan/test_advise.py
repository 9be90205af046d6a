"""stowplan advise: its figures are those of the commands that do what it advises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.profiler import Profile, formats
from stowplan.profiler.program_summary import Program

from ..children import ROOT
from .command_line import figures, refused, stowplan

GRAPH = ROOT / "tests" / "data" / "graphs" / "resnet18_b1_train.json.gz"
KIB = 1024


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Two blocks of forward, one of backward, one of forward that ends before backward asks; 3 KiB are older.

    ::

        tick           0    1    2    3    4    5    6
        0 forward      [=======================)            8 KiB
        1 forward           [====)                          1 KiB
        2 backward                    [===================) 4 KiB
        3 forward                          [=========)      2 KiB: at tick 4 all but block 1 are alive
    """
    step = Profile(
        size=np.array([8, 1, 4, 2]) * KIB,
        start=np.array([0, 1, 3, 4]),
        end=np.array([5, 2, 7, 6]),
        period=8,
        site=np.array([0, 0, 1, 0]),
        sites=("net.py:3 f > Conv (forward)", "net.py:9 g > Conv (backward)"),
        alive=np.array([11, 12, 15, 17]) * KIB,
        program=Program(library="CuPy", steps=2, repeats=2, requests=8, bytes=30 * KIB, live_peak=17 * KIB),
    )
    path = tmp_path / "step.profile"
    step.save(path)
    return path


def remedies(found: dict[str, Any], kind: str) -> dict[str, Any]:
    return {row["name"]: row for row in found["remedies"][kind]}


def test_a_profile_s_peak_and_remedies(profile: Path) -> None:
    found, compared = figures("advise", profile), figures("compare", profile)
    own = compared["pools"]["cupy"]
    assert found["parts"]["profile"] == {
        "retained": 3 * KIB,
        "activations": 8 * KIB,
        "gradients": 4 * KIB,
        "temporaries": 2 * KIB,
        "step": 0,
        "fragmentation": round(compared["with_plan"] / (1 - own["saved"])) - 17 * KIB,
    }
    rows = remedies(found, "profile")
    assert rows["a plan"]["size"] == compared["with_plan"]
    titles = {pool["title"]: pool for pool in compared["pools"].values()}
    for name in rows.keys() - {"a plan"}:
        assert titles[name]["saved"] == pytest.approx(1 - compared["with_plan"] / rows[name]["size"])
    assert next(iter(rows)) == own["title"]
    assert len(found["cannot_be_told"]) == 2


def test_a_graph_s_peak_and_remedies(tmp_path: Path) -> None:
    found, curve = figures("advise", GRAPH, "--time-limit", 600), figures("schedule", GRAPH, "--points", 2)
    rows, resident = remedies(found, "graph"), curve["resident"]
    plain = curve["recorded_peak"] + resident
    assert sum(found["parts"]["graph"].values()) == plain == rows["as recorded"]["size"]
    assert rows["early release"]["size"] == curve["lean_peak"] + resident
    assert rows["a better order"]["size"] == figures("order", GRAPH, "--time-limit", 600)["peak"] + resident
    for share, swap in ((0.8, False), (0.5, False), (0.5, True)):
        row = rows[f"{'offloading' if swap else 'recomputation'} at {share:.0%}"]
        command = ("schedule", GRAPH, "--budget", int(share * plain), "--time-limit", 600, *["--swap"] * swap)
        if row["size"] is None:
            assert f"{row['how'].split()[-2]}, {resident:,} of them" in stowplan(*command).output
        else:
            line = figures(*command)["schedule"]
            assert (row["size"], row["extra"]) == (line["peak"] + resident, line["extra_share"])
    shown = stowplan("advise", GRAPH, "--time-limit", 600, columns=100).output
    for text in ("activations", 'budget="80%"', "cannot be told"):
        assert text in shown


def test_a_log_and_a_graph_of_it(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "Thread,Time,Action,Pointer,Size,Stream\n1,1.0,allocate,0x100,4096,0\n1,2.0,free,0x100,4096,0\n"
    )
    found = figures("advise", log, GRAPH, "--time-limit", 600)
    assert (set(found["remedies"]), len(found["cannot_be_told"])) == ({"profile", "graph"}, 2)
    assert found["remedies"]["profile"][0]["name"] == "RMM's pool"  # the log's own comes first
    assert "read as one step" in stowplan("show", log).output
    alone = found["parts"]["profile"]  # no call sites: nothing tells more of the step's own blocks
    assert alone["step"] == formats.read(log).planned_peak
    log.write_text(f"{log.read_text()}1,3.0,free,0x900,64,0\n")  # a block from before the log
    assert any("before the file begins" in told for told in figures("advise", log)["cannot_be_told"])


def test_bad_input(profile: Path, tmp_path: Path) -> None:
    assert "several files of a kind" in stowplan("advise", profile, profile).output
    (tmp_path / "cut").write_bytes(profile.read_bytes()[:100])
    assert "cut" in refused("advise", tmp_path / "cut")
    (tmp_path / "empty.csv").write_text("Thread,Time,Action,Pointer,Size,Stream\n")
    assert "no allocation" in refused("advise", tmp_path / "empty.csv")
    assert "no such file" in refused("advise", tmp_path / "missing")
