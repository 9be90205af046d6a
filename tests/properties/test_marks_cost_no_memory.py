"""A mark never costs memory that users see, beside plain NumPy, nor a bit: loops whose steps differ, in processes."""

from __future__ import annotations

import json

import pytest

from ..children import printed

MOST = 12 << 10  # KiB: what stowplan itself needs, and a slack

LOOP = """
import contextlib, resource, sys
import numpy as np
way = sys.argv[1]
step = contextlib.nullcontext
if way == "marked":
    from stowplan import NumpyPool
    pool = NumpyPool(warmup=1, planning_share=float("inf"))
    pool.install()
    step = pool.step
random = np.random.RandomState(0)
weights = np.ones((512, 512), "f")
for _ in range(20):
    length = int(random.randint(10, 50))
    with step():
        kept = []
        for t in range(length):
            h = np.ones((64, 512), "f") @ weights
            gates = np.concatenate([h] * 4, 1)
            kept.append((h, gates, np.tanh(gates)))
        out = np.empty((64, 512, length * 8), "f")
        out[:] = 1
        soft = np.exp(-out)
        del out
        gradient = soft.sum(2)
        while kept:
            h, gates, a = kept.pop()
            gradient = gradient + (a * gates)[:, :512]
        del soft, h, gates, a
    if way == "marked":
        pool.wait()
if way == "marked":
    assert pool.stats.replayed > 1000
    assert pool.stats.peak_reserved_bytes <= pool.stats.peak_live_bytes + (2 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_loop_whose_lengths_vary_needs_no_more_marked_than_plain() -> None:
    plain, marked = (int(printed("-c", LOOP, way)) for way in ("plain", "marked"))
    assert marked <= plain + MOST


@pytest.mark.parametrize(("first", "count"), [(0, 10), pytest.param(10, 190, marks=pytest.mark.slow)])
def test_loops_whose_steps_differ_need_no_more_marked_than_plain(first: int, count: int) -> None:
    for line in printed("-m", "tests.properties.marked_programs", first, count).splitlines():
        found = json.loads(line)
        plain, unmarked, marked = (found[way] for way in ("plain", "unmarked", "marked"))
        assert max(unmarked[0], marked[0]) <= plain[0] + MOST, found
        assert plain[1] == unmarked[1] == marked[1], found
