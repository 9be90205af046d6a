"""Races on the simulated device: none is lost, and with a safety measure of the pool switched off one is, soon.

Each program runs in a process of its own, as a fault of the simulated device ends it. `race_program.py` says what the
programs do; ``python -m tests.device.race_program --operations 1000000`` is the long run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import programs

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = "10000"
SCHEDULES = ("adversarial", "lazy")
SEEDS = (1, 2)

SIGNS = {
    "wait": "WrongValueError",
    "hold": "simhip: fault|WrongValueError",
    "capture": "ErrorStreamCapture",
    "idle": "simhip: fault|WrongValueError",
}
"""What standard error has where a measure is switched off; see `race_program.MEASURES`."""


def run(seed: int, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    command = [sys.executable, "-m", "tests.device.race_program", "--operations", OPERATIONS]
    return subprocess.run(
        [*command, "--seed", str(seed), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("schedule", [*SCHEDULES, "eager"])
@pytest.mark.parametrize("pool", ["cupy", "c"])
def test_no_value_is_wrong(pool: str, schedule: str, seed: int) -> None:
    done = run(seed, "--pool", pool, SIMHIP_SCHEDULE=schedule)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert done.stdout.startswith("no value is wrong: ")
    counts = re.findall(r"\d[\d,]*", done.stdout)
    assert len(counts) == 6
    assert "0" not in counts  # there was something of everything


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("measure", SIGNS)
def test_without_the_measure_a_race_is_lost(measure: str, schedule: str, seed: int) -> None:
    done = run(seed, "--without", measure, SIMHIP_SCHEDULE=schedule)
    assert done.returncode != 0, done.stdout
    assert re.search(SIGNS[measure], done.stderr), done.stderr


UPSTREAM_ARENA = """
import sys

import cupy

from stowplan import CupyPool
from tests.device.other_driver import driver_without

if sys.argv[1] == "off":
    table = driver_without("event_synchronize", "device_synchronize")
    CupyPool._table = lambda self: table
N = 100_000
of_cupy = cupy.cuda.MemoryPool()
pool = CupyPool(lambda size: of_cupy.malloc(size))  # keeps what it is given back
cupy.cuda.set_allocator(pool.malloc)
side, other = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)


def step():
    with pool.step():
        with side:
            return cupy.full(N, 1, cupy.float32).data.ptr


with other:  # which the arena is taken on
    for _ in range(6):
        step()
        pool.wait()
    cupy.cuda.Device().synchronize()
    reasons = pool.stats.reasons
    batch = step()
    assert pool.stats.reasons == reasons  # replayed in full
    pool.free_all_blocks()
    array = cupy.full(N, 2, cupy.float32)
    assert array.data.ptr == batch
cupy.cuda.Device().synchronize()
print(array.get().min())  # what side still writes may come later
"""


@pytest.mark.parametrize(("measure", "found"), [("on", "2.0"), ("off", "1.0")])
def test_an_arena_goes_back_upstream_when_streams_are_done(measure: str, found: str) -> None:
    done = programs.run(
        f"import sys; sys.argv[1:] = ['{measure}']\n{UPSTREAM_ARENA}", SIMHIP_SCHEDULE="adversarial"
    )
    assert done.stdout.strip() == found
