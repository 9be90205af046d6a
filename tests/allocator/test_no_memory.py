"""No memory for the pool's own bookkeeping: the program goes on without the plan, and has it later."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..children import printed

PROGRAM = """if True:
    import ctypes, sys
    import numpy as np
    from stowplan import NumpyPool
    failing = ctypes.CDLL(None)

    def steps(count):
        for i in range(count):
            if marked:
                with pool.step():
                    work(i)
            else:
                work(i)
            pool.wait(60)

    def work(i):
        try:
            a = np.full(3000, i)
            b = a * 2
            assert (b == 2 * i).all()
        except MemoryError:  # for the request that cannot be noted
            pass

    marked, calls = sys.argv[1] == "marked", 0
    while True:
        calls += 1
        pool = NumpyPool(warmup=0) if marked else NumpyPool(auto_step=True)
        with pool:
            failing.fail_at(calls)
            steps(6 if marked else 12)
            if failing.calls_left() > 0:
                break
            steps(6 if marked else 24)
            assert pool.stats.replayed > 0, calls
    failing.fail_at(0)
    print(calls)
    """


@pytest.mark.parametrize("way", ["marked", "found"])
def test_one_failure_of_new_at_any_call_ends_neither_the_program_nor_planning(
    way: str, tmp_path: Path
) -> None:
    compiler = shutil.which("c++")
    if sys.platform != "linux":
        pytest.skip("LD_PRELOAD is Linux's")
    if compiler is None:
        pytest.skip("no C++ compiler; expected: c++")
    source = Path(__file__).with_name("failing_new.cpp")
    library = tmp_path / "failing_new.so"
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", source, "-o", library], check=True)
    assert int(printed("-c", PROGRAM, way, LD_PRELOAD=str(library))) > 10
