"""Parts of a program that are interrupted: their requests go upstream, and stay out of the record."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.errors import PoolError

from .test_numpy_pool import chain, train


def test_interrupted_parts_stay_out_of_the_profile() -> None:
    pool = NumpyPool(small=0)
    kept: list[np.ndarray] = []
    with pool:
        for i in range(10):
            with pool.step():
                born_before = np.full(300, 1.0)
                with pool.interrupt():
                    kept.append(np.full(1000 + 100 * i, 4.0))  # another size each time
                    del born_before
                    with pool.interrupt():
                        np.ones(70 * i)
                    np.ones(90 * i)
                assert chain() == chain()
            pool.wait()
    assert pool.stats.plans == 1
    assert set(pool.stats.reasons) == {"no_plan", "interrupted"}
    assert all((a == 4).all() for a in kept)


def test_interrupt_as_calls_and_as_decorator() -> None:
    pool = NumpyPool(small=0)

    @pool.interrupt
    def one(n: int) -> int:
        """Make one."""
        return len(np.ones(n))

    @pool.interrupt()
    def two(n: int) -> int:
        return len(np.ones(n))

    with pool:
        for i in range(6):
            with pool.step():
                chain()
                pool.interrupt()
                np.ones(10 + i)
                pool.resume()
                assert (one(20 + i), two(30 + i)) == (20 + i, 30 + i)
            pool.wait()
    assert (one.__name__, one.__doc__) == ("one", "Make one.")
    assert pool.stats.plans == 1
    assert "mismatch" not in pool.stats.reasons


def test_interruptions_are_per_thread() -> None:
    pool = NumpyPool(small=0)
    with pool:
        train(pool, 4)
        with pool.step():
            thread = threading.Thread(target=pool.interrupt)
            thread.start()
            thread.join()
            chain()
    assert "interrupted" not in pool.stats.reasons


def test_misuse_of_interruptions_is_refused() -> None:
    pool = NumpyPool(small=0)
    with pytest.raises(PoolError, match="resume without interrupt"):
        pool.resume()
    with pool, pool.interrupt(), pytest.raises(PoolError, match="in an interrupted part"), pool.step():
        pass
    with pool, pool.step():
        pass
