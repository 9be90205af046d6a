"""``stowplan run`` of unchanged CuPy programs beside CuPy's own pool: what the device has in use."""

from __future__ import annotations

import json
from pathlib import Path

from ..children import ROOT, python

MIB = 1 << 20
LOOP = """
import sys
sys.path.insert(0, sys.argv[1])
import waiting
import cupy

most, before = 0, cupy.cuda.runtime.memGetInfo()[0]

def block(mebibytes):
    global most
    array = cupy.empty(mebibytes << 20, "b")
    most = max(most, before - cupy.cuda.runtime.memGetInfo()[0])
    return array

def step(u):
    a = block(40); b = block(30); a = block(50); del b
    c = block(20); d = block(60); del a, c
    return block(40)

u = block(40)
for number in range(40):
    u = step(u)
    if number % 10 == 9:
        waiting.for_plans()
pool = cupy.get_default_memory_pool()
used = pool.used_bytes()
pool.set_limit(500 << 20)
try:
    block(600)
except cupy.cuda.memory.OutOfMemoryError:
    limited = pool.get_limit()
print(most, used, limited)
"""


def test_a_program_takes_no_more_of_the_device_than_with_cupy_s_pool(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    words = (tmp_path / "loop.py", ROOT / "tests/stowplan")
    plain = python(*words)
    run = ("-m", "stowplan", "run", "--step-function", "__main__:step", "--stats", tmp_path / "stats.json")
    served = python(*run, *words)
    most, *rest = map(int, plain.stdout.split())
    served_most, *others = map(int, served.stdout.split())
    assert rest == others == [40 * MIB, 500 * MIB], served.stderr
    assert served_most <= most
    assert json.loads((tmp_path / "stats.json").read_text())["cupy"]["replayed"] > 0


STAGES = """
import random
import sys
sys.path.insert(0, sys.argv[1])
import waiting
import cupy
import stowplan

most, before = 0, cupy.cuda.runtime.memGetInfo()[0]

def block():
    global most
    array = cupy.empty(4 << 20, "b")
    most = max(most, before - cupy.cuda.runtime.memGetInfo()[0])
    return array

def stage(u):
    a = block(); b = block(); a = block(); del b
    return block()

draw = random.Random(0)
u = block()
for number in range(60):
    with stowplan.step():
        for attempt in range(draw.choice((1, 1, 1, 2))):  # as an adaptive solver that may reject a step
            k1 = stage(u); k2 = stage(u); t = block(); k3 = stage(t); del t
            v = block(); k4 = stage(v); e = block(); del e
        u = v
    waiting.for_plans()
    del k1, k2, k3, k4, v
print(most)
"""


def test_an_arena_grows_no_further_than_what_was_live(tmp_path: Path) -> None:
    (tmp_path / "stages.py").write_text(STAGES)
    words = (tmp_path / "stages.py", ROOT / "tests/stowplan")
    most = int(python(*words).stdout)
    assert int(python("-m", "stowplan", "run", *words).stdout) <= most == 10 * 4 * MIB


def test_the_limit_of_cupy_s_pools_is_kept() -> None:
    code = "import cupy; print(cupy.get_default_memory_pool().get_limit()); cupy.empty(200 << 20, 'b')"
    for first in ((), ("-m", "stowplan", "run", "-")):
        done = python(*first, *(() if first else ("-",)), stdin=code, CUPY_GPU_MEMORY_LIMIT=str(100 * MIB))
        assert (done.returncode, done.stdout) == (1, f"{100 * MIB}\n"), done.stderr
        assert "OutOfMemoryError" in done.stderr
