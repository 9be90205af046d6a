"""``stowplan profile`` and ``stowplan run`` on a CuPy program with kernels and a stream of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stowplan import Profile

from ..children import printed, stowplan

pytestmark = pytest.mark.gpu

WAITING = Path(__file__).resolve().parents[1] / "stowplan" / "waiting.py"
PROGRAM = """
import waiting
import cupy

def step(x):
    y = cupy.sqrt(x * 2 + 1)
    z = cupy.concatenate([y, x])
    return float(z[::3].sum())

x = cupy.arange(200_000, dtype=cupy.float64)
total = 0
for number in range(600):
    total += step(x)
    if number < 200 and number % 10 == 9:  # plans are made beside the program
        waiting.for_plans()
print(total)
"""


def test_profile_and_run(cupy: Any, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    shutil.copy(WAITING, tmp_path)
    plain = printed("program.py", folder=tmp_path)
    profiled = stowplan("profile", "--stacks", "0", "program.py", folder=tmp_path)
    assert profiled.stdout == plain
    assert "stowplan: CuPy: the step that it repeats" in profiled.stderr
    profile = Profile.load(tmp_path / "program.profile")
    assert profile.planned_peak >= 400_000 * 8
    assert {site.rpartition("/")[2].partition(":")[2] for site in profile.sites} >= {"6 step", "7 step"}
    run = ("run", "--step-function", "__main__:step", "--stats", "stats.json", "program.py")
    assert stowplan(*run, folder=tmp_path).stdout == plain
    figures = json.loads((tmp_path / "stats.json").read_text())["cupy"]
    assert figures["share"] > 0.99
    assert figures["replayed"] > 0.5 * figures["requests"]
