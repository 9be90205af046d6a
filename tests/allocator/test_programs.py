"""Programs as people write them: loops in loops, phases, odd batches, frames of several sizes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle, islice, repeat
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.allocator.stats import Stats

from .programs import frames, nothing, perceptron, phases, solver

Program = Callable[[Callable[[], AbstractContextManager[object]], Callable[[], object]], Any]


def run(program: Program, *, marked: bool) -> list[Stats]:
    """Run a program plainly and through a pool; return the pool's counts after each step, plans being ready."""
    pool = NumpyPool(auto_step=not marked)
    stats = [pool.stats]

    def after_step() -> None:
        pool.wait()
        stats.append(pool.stats)

    with pool:
        result = program(pool.step if marked else nullcontext, after_step)
    expected = program(nullcontext, nothing)
    for one, other in zip(np.atleast_1d(result), np.atleast_1d(expected), strict=True):
        np.testing.assert_array_equal(one, other)
    return stats


def replayed(stats: list[Stats], first: float = 0.5, last: float = 1.0) -> float:
    """Share of the planned-size requests that were replayed in a part of the program, by default its second half."""
    before, after = (stats[round(place * (len(stats) - 1))] for place in (first, last))
    served = after.replayed - before.replayed
    return served / (served + after.upstream - before.upstream + after.guests - before.guests)


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize(("count", "parts"), [(8, 4), (3, 4), (5, 20)])
def test_a_solver_in_each_time_step(count: int, parts: int, marked: bool) -> None:
    stats = run(lambda step, after: solver(repeat(count, 80), step, after, parts), marked=marked)
    assert replayed(stats) > 0.95


def test_a_solver_with_two_counts_in_turn() -> None:
    stats = run(lambda step, after: solver(islice(cycle([5, 6]), 60), step, after, 8), marked=True)
    assert replayed(stats) > 0.95


def test_three_phases_have_a_step_each() -> None:
    stats = run(lambda _, after: np.concatenate([np.ravel(part) for part in phases(60, after)]), marked=False)
    for end in (1 / 3, 2 / 3, 1):
        assert replayed(stats, end - 0.1, end) > 0.95


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("validate_every", [1, 3])
def test_an_odd_last_batch_and_a_validation(validate_every: int, marked: bool) -> None:
    stats = run(lambda step, after: perceptron(12, step, after, validate_every=validate_every), marked=marked)
    assert replayed(stats) > 0.95


@pytest.mark.parametrize("marked", [False, True])
def test_frames_of_three_sizes_in_turn(marked: bool) -> None:
    assert replayed(run(lambda step, after: frames(60, None, step, after), marked=marked)) > 0.95


def test_marked_frames_of_three_sizes_in_any_order() -> None:
    sides = np.random.default_rng(3).choice([64, 96, 80], 60).tolist()
    assert replayed(run(lambda step, after: frames(60, iter(sides), step, after), marked=True)) > 0.95
