"""Steps whose results outlive them, as those of tasks do; and the limit of a pool."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.errors import ProfileError

SIZES = {"a": 3000, "b": 5000, "c": 4000}


def task(kind: str, value: float) -> np.ndarray:
    """Two intermediates, and a result as large as these."""
    first = np.full(SIZES[kind], value)
    second = first * 2
    return first + second


def run(pool: NumpyPool, tasks: int, keep: int) -> list[tuple[int, int, int, int]]:
    """Run tasks of three kinds in no order, with the last results alive; return the counts of each: replayed, guests,
    escaped, others.
    """
    order = np.random.default_rng(0).choice(list(SIZES), tasks)
    kept: deque[tuple[float, np.ndarray]] = deque(maxlen=keep)
    counts = []
    with pool:
        for number, kind in enumerate(order):
            before = pool.stats
            with pool.step(str(kind), keeps_results=True):
                kept.append((3.0 * number, task(str(kind), float(number))))
            pool.wait()
            after = pool.stats
            assert all((result == value).all() for value, result in kept)
            escaped = after.reasons.get("escaped", 0) - before.reasons.get("escaped", 0)
            replayed, guests = after.replayed - before.replayed, after.guests - before.guests
            counts.append((replayed, guests, escaped, after.requests - before.requests - replayed - escaped))
    return counts


def test_intermediates_are_replayed_and_results_escape() -> None:
    pool = NumpyPool(warmup=0)
    counts = run(pool, 60, keep=20)
    assert set(counts[20:]) == {(2, 0, 1, 0)}
    assert pool.stats.plans == len(SIZES)
    assert pool.stats.guests == 0
    assert pool.stats.arena_bytes < 2 * 5000 * 8 + 4096  # the intermediates of the largest kind


def test_an_arena_is_made_within_the_limit_or_not_at_all() -> None:
    sizes = (30_000, 30_000)  # 480,000 bytes of an arena
    for limit, share in ((800_000, 1.0), (700_000, 0.0)):
        pool = NumpyPool(warmup=0, limit=limit)
        with pool:
            for _ in range(6):
                before = pool.stats
                with pool.step():
                    between = None
                    arrays = [np.ones(size) for size in sizes]
                    del arrays
                after = pool.stats
                between = np.ones(35_000)
                pool.wait()
        assert between is not None
        assert (after.replayed - before.replayed) / (after.requests - before.requests) == share
        if not share:
            with pytest.raises(ProfileError, match="no memory for its arena of 480,000 bytes; expected more"):
                pool.plan()
        assert after.reserved_bytes <= limit
        assert after.peak_reserved_bytes <= limit


def test_what_one_thread_has_learned_another_one_need_not() -> None:
    pool = NumpyPool(warmup=0)
    run(pool, 40, keep=5)
    plans = pool.stats.plans
    found = []

    def other() -> None:
        with pool, pool.step("nothing"):  # meanwhile this thread's steps have another step slot
            begun.set()
            assert go_on.wait(600)

    begun, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(600)
    with pool:
        for kind in SIZES:
            before = pool.stats.replayed
            with pool.step(kind, keeps_results=True):
                task(kind, 1.0)
            found.append(pool.stats.replayed - before)
    go_on.set()
    thread.join()
    assert found == [2] * len(SIZES)
    assert pool.stats.plans == plans
