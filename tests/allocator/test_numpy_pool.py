"""NumpyPool through real NumPy arrays."""

from __future__ import annotations

import numpy as np

from stowplan import NumpyPool


def chain(size: int = 10_000) -> float:
    """A step with temporaries of several sizes."""
    a = np.arange(size, dtype=np.float64)
    b = a * 2 + 1
    c = np.concatenate([b, a])
    return float(c[::7].sum())


def train(pool: NumpyPool, steps: int, work=chain) -> list[object]:
    results = []
    for _ in range(steps):
        with pool.step():
            results.append(work())
        pool.wait()  # so that plans are taken up where the tests say
    return results


def test_the_arena_grows_in_place_around_what_lives_in_it() -> None:
    pool = NumpyPool(small=0, warmup=0)
    with pool:
        train(pool, 3)
        with pool.step():
            kept = np.arange(10_000, dtype=np.float64)
            chain()
        expected = kept.copy()
        train(pool, 4, lambda: chain(50_000))
        assert (kept == expected).all()
        assert 0 < pool.stats.arena_bytes <= pool.plan().arena_bytes
        del kept
        train(pool, 1, lambda: chain(50_000))
