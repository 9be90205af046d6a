"""Plans in an arena in which blocks have come to stay: state made lazily, by a step that a plan from a file served."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.allocator.stats import Stats


class Training:
    """Two layers under Adam, whose moments are made in the first step; from a step on, a mean of the parameters."""

    def __init__(self, mean_from: int | None = None) -> None:
        self.rng = np.random.default_rng(0)
        self.parameters = [self.rng.standard_normal(shape) for shape in ((100, 200), (200, 50))]
        self.moments: list[tuple[np.ndarray, np.ndarray]] = []
        self.means: list[np.ndarray] = []
        self.mean_from = mean_from
        self.number = 0

    def gradients(self) -> list[np.ndarray]:
        first, second = self.parameters
        x = self.rng.standard_normal((64, 100))
        h = np.maximum(x @ first, 0)
        error = h @ second - 1
        back = error @ second.T
        back[h <= 0] = 0
        return [x.T @ back, h.T @ error]

    def step(self) -> None:
        gradients = self.gradients()
        if not self.moments:
            self.moments = [(np.zeros_like(p), np.zeros_like(p)) for p in self.parameters]
        for p, g, (m, v) in zip(self.parameters, gradients, self.moments, strict=True):
            m *= 0.9
            m += 0.1 * g
            v *= 0.99
            v += 0.01 * g * g
            p -= 1e-3 * m / (np.sqrt(v) + 1e-8)
        if self.number == self.mean_from:
            self.means = [p.copy() for p in self.parameters]
        for mean, p in zip(self.means, self.parameters, strict=False):
            mean += 0.01 * (p - mean)
        self.number += 1


def train(pool: NumpyPool, training: Training, steps: int) -> Iterator[Stats]:
    """Yield the counts after each step."""
    for _ in range(steps):
        with pool:
            with pool.step():
                training.step()
            pool.wait()
        yield pool.stats


def upstream_or_guests(counts: list[Stats]) -> list[int]:
    """Return how many requests of each step but the first were not served from a plan."""
    return [b.guests + b.upstream - a.guests - a.upstream for a, b in pairwise(counts)]


def without_a_pool(steps: int, mean_from: int | None = None) -> list[np.ndarray]:
    """Return the parameters after so many steps, bit by bit."""
    training = Training(mean_from)
    for _ in range(steps):
        training.step()
    return training.parameters


@pytest.mark.parametrize("resumed", [False, True])
def test_a_plan_of_a_trained_program_serves_the_next_run(tmp_path: Path, resumed: bool) -> None:
    trained = NumpyPool()
    last = list(train(trained, Training(), 6))[-1]
    trained.save(tmp_path / "plans")
    pool, training = NumpyPool.load(tmp_path / "plans"), Training()
    if resumed:
        training.moments = [(np.zeros_like(p), np.zeros_like(p)) for p in training.parameters]
    counts = list(train(pool, training, 8))
    second, *others = upstream_or_guests(counts)
    assert (second == 0) == resumed  # what the first step has left stands in the way
    assert others == [0] * 6
    assert counts[-1].reserved_bytes <= 1.2 * last.reserved_bytes  # what stays has broken the arena up
    assert all((a == b).all() for a, b in zip(training.parameters, without_a_pool(8), strict=True))


@pytest.mark.parametrize("warmup", [0, 1])
def test_a_program_that_begins_to_keep_is_replayed_again(warmup: int) -> None:
    pool, training = NumpyPool(warmup=warmup), Training(mean_from=8)
    counts = list(train(pool, training, 24))
    assert upstream_or_guests(counts)[-8:] == [0] * 8
    assert all((a == b).all() for a, b in zip(training.parameters, without_a_pool(24, 8), strict=True))
