"""Programs whose steps differ, served from merged plans."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.allocator.backends.numpy_pool import FINE, SMALL


def run_loops(running: Sequence[int]) -> None:
    """Run such a step; and an update of parameters in the end, which is always the same."""
    kept = []
    for i, n in enumerate(running):
        kept.append(np.full(20_000, i, dtype=np.int32))
        for _ in range(6):
            np.ones(512 * n) + 1
    for n in reversed(running):
        block = kept.pop()
        assert (block == len(kept)).all()
        for _ in range(6):
            np.ones(512 * n) + 1
    for n in (3, 5, 7, 11, 13):
        np.ones(1000 * n) + 1


@pytest.mark.parametrize("marked", [True, False])
def test_a_program_that_never_repeats_is_replayed_from_a_merged_plan(tmp_path: Path, marked: bool) -> None:
    pool = NumpyPool(warmup=0, auto_step=not marked)
    rng = np.random.default_rng(0)
    steps = 30
    with pool:
        for i in range(steps):
            if i == steps // 2:
                before = pool.stats
            with pool.step() if marked else nullcontext():
                run_loops(np.sort(rng.integers(1, 9, rng.integers(20, 40)))[::-1].tolist())
            pool.wait()
    after = pool.stats
    replayed = after.replayed - before.replayed
    assert after.reoptimizations > 0
    share = 0.8 if marked else 0.6  # which steps found were merged is a matter of time
    assert replayed > share * (replayed + after.guests - before.guests + after.upstream - before.upstream)
    pool.save(tmp_path / "plans")
    loaded = NumpyPool.load(tmp_path / "plans")
    with loaded, loaded.step():
        run_loops(sorted([*range(1, 9)] * 4, reverse=True))
    assert loaded.stats.replayed > loaded.stats.guests + loaded.stats.upstream


def run_small_loops(running: Sequence[int]) -> None:
    """Run a step whose loop asks for blocks to both sides of the size from which they are planned in a regular one."""
    kept = [np.full(70 * n, n, dtype=np.int64) for n in running]  # 560 to 2,240 bytes
    for n in reversed(running):
        np.ones(1000 * n) + 1
        assert (kept.pop() == n).all()


@pytest.mark.parametrize("small", [None, SMALL])
def test_where_steps_differ_smaller_requests_are_planned_too(tmp_path: Path, small: int | None) -> None:
    pool = NumpyPool(warmup=0, small=small)
    rng = np.random.default_rng(1)
    with pool:
        before = np.full(
            75, 7.0
        )  # asked for while it is too small for a plan, and freed when it would not be
        for _ in range(24):
            with pool.step():
                run_small_loops(np.sort(rng.integers(1, 5, rng.integers(20, 40)))[::-1].tolist())
            pool.wait()
        assert (before == 7).all()
        del before
    sizes = pool.profile().size
    assert (sizes < SMALL).any() == (small is None)
    assert sizes.min() >= (FINE if small is None else SMALL)
    pool.save(tmp_path / "plans")
    loaded = NumpyPool.load(tmp_path / "plans")
    with loaded, loaded.step():
        np.empty(FINE, np.uint8)
    assert loaded.stats.requests == (small is None)


def test_a_program_that_repeats_leaves_small_blocks_to_numpy() -> None:
    pool = NumpyPool(warmup=0)
    with pool:
        for _ in range(6):
            with pool.step():
                run_small_loops([4, 4, 3, 2, 1])
            pool.wait()
    assert pool.profile().size.min() >= SMALL
