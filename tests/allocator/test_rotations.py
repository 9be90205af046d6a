"""Loops that rotate their arrays: u, v, w = v, w, u."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan import NumpyPool

from .programs import nothing, rotation

LEVEL = 64 * 64 * 8
SETTLED = 24
"""Steps after which everything is replayed: warmed up, planned alone, recorded anew, planned in turn."""


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_a_rotation_is_replayed_in_full(levels: int, tmp_path) -> None:
    pool = NumpyPool()
    stats = []

    def after_step() -> None:
        pool.wait()
        stats.append(pool.stats)

    def run(steps: int, pool: NumpyPool, after_step=nothing) -> np.ndarray:
        with pool:
            return rotation(levels, steps, pool.step, after_step=after_step)

    result = run(SETTLED + 16, pool, after_step)
    np.testing.assert_array_equal(result, rotation(levels, SETTLED + 16))
    before, after = stats[SETTLED], stats[-1]
    assert after.upstream + after.guests == before.upstream + before.guests
    assert after.steps - before.steps == 15
    plan = pool.plan()
    assert plan.steps == levels
    assert not plan.profile.escaped.any()
    assert plan.arena_bytes == plan.placement.lower_bound
    # The levels, and what one step has beside them.
    assert levels * LEVEL < plan.arena_bytes <= (levels + 6) * LEVEL

    pool.save(tmp_path / "plans")
    again = NumpyPool.load(tmp_path / "plans")
    np.testing.assert_array_equal(run(12, again), rotation(levels, 12))
    assert again.stats.replayed > 0
