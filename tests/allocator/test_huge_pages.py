"""Whose memory gets huge pages, and that they stay whole.

NumPy's own handler advises them for parts of the C library's heap, the pool does not.

See numpy/numpy#31590: the advice stays when the array has gone, and holds for whatever the C library puts there next.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ..children import printed

ADVISED = """
import re, sys
import numpy as np

if sys.argv[1] == "pool":
    from stowplan.allocator import NumpyPool
    NumpyPool().install()
arrays = [np.ones(4 << 20) for _ in range(4)]
fences = [bytes(2000) for _ in range(100)]
del arrays
name, advised = "", set()
for line in open("/proc/self/smaps"):
    if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
        name = line.split(maxsplit=5)[5].strip() if len(line.split()) > 5 else ""
    elif line.startswith("VmFlags") and "hg" in line.split():
        advised.add(name)
print(sorted(advised))
"""


def advised(handler: str) -> set[str]:
    """Names of the mappings with the advice; ``[heap]`` is the C library's, '' any without a name."""
    return set(ast.literal_eval(printed("-c", ADVISED, handler, MALLOC_MMAP_THRESHOLD_="4294967296")))


def test_others_memory_gets_no_advice_for_huge_pages() -> None:
    if "VmFlags" not in Path("/proc/self/smaps").read_text():
        pytest.skip("this kernel does not tell which memory is advised to have huge pages")
    if "[heap]" not in advised("plain"):
        pytest.skip("this NumPy gives no advice for huge pages")
    assert advised("pool") <= {""}


VARYING = """
import ctypes
import numpy as np
from stowplan import NumpyPool

parts_given_back = ctypes.CDLL(None).parts_given_back
pool = NumpyPool(planning_share=float("inf"))

def advance(u, before):
    lap = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
    return 2 * u - before + 0.25 * lap

with pool:
    u = before = np.ones((800, 800))
    for k in range(100):
        with pool.step():
            u, before = advance(u, before), u
            if k % 5 == 0:
                energy = ((u - before) ** 2).sum() + (np.gradient(u)[0] ** 2).sum()
        pool.wait()
print(parts_given_back())
"""


def test_a_marked_loop_whose_steps_differ_does_not_break_huge_pages_in_each_step(failing_calls: Path) -> None:
    array = 800 * 800 * 8
    assert int(printed("-c", VARYING, LD_PRELOAD=str(failing_calls))) < 100 * array / 2
