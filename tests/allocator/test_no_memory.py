"""No memory for the pool itself, its bookkeeping or its arena: the program goes on without, and has its plan later."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..children import printed

PROGRAM = """if True:
    import contextlib, ctypes, sys
    import numpy as np
    from stowplan import CupyPool, NumpyPool
    failing, way, kernel = ctypes.CDLL(None), sys.argv[1], sys.argv[2] == "kernel"
    if way == "cupy":
        from tests.allocator.cupy_host import HostUpstream
    POOLS = {
        "marked": lambda: NumpyPool(warmup=0),
        "cupy": lambda: CupyPool(HostUpstream(), device=0, warmup=0),
    }

    def steps(count):
        for i in range(count):
            with pool.step():
                work(i)
            pool.wait(600)
            if kernel:
                pool.trim()

    def work(i):
        if way == "cupy":
            kept = [pool.malloc(3000), pool.malloc(2000)]  # arrays have memory of CuPy's own
            del kept[0]
            return pool.malloc(5000)
        a = np.full(30_000, i)
        b = a * 2
        assert (b == 2 * i).all()

    calls, unnoted = 0, 0
    while True:
        calls += 1
        pool = POOLS[way]()
        with contextlib.nullcontext() if way == "cupy" else pool:
            failing.fail_at(calls, kernel)
            steps(6)
            if failing.calls_left() > 0:
                break
            passed_over = pool.stats.reasons.get("unnoted", 0)
            assert ("no memory was left to note" in pool.report()) == (passed_over > 0)
            unnoted += passed_over
            steps(6)
            assert pool.stats.replayed > 0, calls
        assert pool.stats.live_bytes == 0
    failing.fail_at(0, False)
    print(calls, unnoted)
    """


@pytest.mark.parametrize("way", ["marked", "cupy"])
def test_one_failure_of_new_at_any_call_ends_neither_the_program_nor_planning(
    way: str, failing_calls: Path
) -> None:
    if way == "cupy":
        pytest.importorskip("cupy", reason="CuPy is not installed; expected: pip install 'stowplan[cupy]'")
    calls, unnoted = printed("-W", "ignore", "-c", PROGRAM, way, "new", LD_PRELOAD=str(failing_calls)).split()
    assert int(calls) > 10
    assert int(unnoted) > 0


def test_the_kernel_s_refusal_at_any_call_ends_neither_the_program_nor_planning(failing_calls: Path) -> None:
    calls, _ = printed("-c", PROGRAM, "marked", "kernel", LD_PRELOAD=str(failing_calls)).split()
    assert int(calls) > 4
