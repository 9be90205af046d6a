"""Loops that keep what a step made until the next one has made its own: two steps take turns on one plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest

from stowplan import NumpyPool

ROWS, UNITS, LAYERS = 60, 40, 5
DATA = np.random.default_rng(0)
WEIGHTS = DATA.standard_normal((LAYERS, UNITS, UNITS)) / UNITS


def forward(rows: int = ROWS, seed: int = 0) -> list[np.ndarray]:
    """The activations of some layers, as the graph of a loss keeps them; in between there are temporaries."""
    activations = [np.full((rows, UNITS), float(seed + 1))]
    for weight in WEIGHTS:
        activations.append(np.maximum(activations[-1] @ weight, 0))
    return activations


def contents(arrays: list[np.ndarray]) -> list[bytes]:
    return [array.tobytes() for array in arrays]  # no array is made


class Loop:
    """``kept = forward()`` in steps of a pool, with what is kept looked at before it goes."""

    def __init__(self, pool: NumpyPool) -> None:
        self.pool = pool
        self.kept: list[np.ndarray] = []
        self.steps = 0

    def run(self, steps: int, rows: int = ROWS, key: str | None = None) -> float:
        """Return the share of the requests that were replayed."""
        before = self.pool.stats
        for _ in range(steps):
            kept = contents(self.kept)
            with self.pool.step(key):
                following = forward(rows, self.steps)
                assert contents(self.kept) == kept
                self.kept = following
                del following
            self.pool.wait()
            self.steps += 1
        after = self.pool.stats
        replayed = after.replayed - before.replayed
        return replayed / (replayed + after.upstream - before.upstream + after.guests - before.guests)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop whose pool is entered."""
    with NumpyPool() as pool:
        yield Loop(pool)


def test_turns_are_found_again_after_another_step(loop: Loop) -> None:
    for _ in range(4):
        loop.run(4, key="train")
        loop.run(1, rows=ROWS // 2, key="evaluate")
    loop.run(1, key="train")  # what the evaluation keeps stands in the way of this one
    assert loop.run(5, key="train") == 1
    assert loop.pool.stats.plans <= 3


def test_results_that_are_dropped_after_all(loop: Loop) -> None:
    loop.run(5)
    loop.kept = []
    for seed in range(5):
        with loop.pool.step():
            forward(seed=seed)
    assert loop.pool.stats.reasons.keys() == {"no_plan"}
    loop.run(1)
    assert loop.run(3) == 1
    assert loop.pool.stats.plans == 1


def test_what_is_kept_for_more_than_eight_steps_escapes() -> None:
    pool = NumpyPool()
    kept: deque[np.ndarray] = deque(maxlen=9)
    with pool:
        for value in range(32):
            with pool.step():
                kept.append(np.full(5000, float(value)))
                temporary = kept[-1] * 2
                del temporary
            pool.wait()
    assert pool.profile().escaped.tolist() == [True, False]
    assert [array[0] for array in kept] == list(range(23, 32))
    assert all((array == array[0]).all() for array in kept)
    assert pool.stats.reasons["escaped"] == 29
