"""Steps that run slice by slice, in turns."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.compat import enable_chainer
from stowplan.errors import MissingDependencyError

try:
    enable_chainer()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

import chainer.functions as F  # noqa: N812

from experiments.measures import interleave

FUNCTIONS = 5


@pytest.fixture
def at_each_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleave, "SLICE", 0)


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def steps(ran: list[str]) -> dict[str, interleave.InterleavedStep]:
    """Two steps; what they add to `ran` tells which of them ran when."""

    def step_named(name: str) -> interleave.InterleavedStep:
        def step() -> None:
            for _ in range(FUNCTIONS):
                ran.append(name)
                F.relu(np.ones(1, np.float32))
                ran.append(name)

        return interleave.InterleavedStep(step)

    return {name: step_named(name) for name in ("a", "b")}


def test_steps_hand_over_between_functions(
    at_each_function: None, steps: dict[str, interleave.InterleavedStep], ran: list[str]
) -> None:
    interleave.alternate(steps, np.random.default_rng(0), 1)
    assert sorted(ran) == ["a"] * 2 * FUNCTIONS + ["b"] * 2 * FUNCTIONS
    changes = sum(one != other for one, other in itertools.pairwise(ran))
    assert changes >= FUNCTIONS  # one for each slice, and more where the order stayed


def test_short_steps_run_whole(steps: dict[str, interleave.InterleavedStep], ran: list[str]) -> None:
    interleave.alternate(steps, np.random.default_rng(0), 3)
    for step in np.reshape(ran, (-1, 2 * FUNCTIONS)):
        assert len(set(step)) == 1


def test_each_has_its_own_seconds(at_each_function: None) -> None:
    def slow() -> None:
        for _ in range(3):
            F.relu(np.ones(1, np.float32))
            time.sleep(0.05)

    def quick() -> None:
        for _ in range(3):
            F.relu(np.ones(1, np.float32))

    steps = {"slow": interleave.InterleavedStep(slow), "quick": interleave.InterleavedStep(quick)}
    seconds = interleave.alternate(steps, np.random.default_rng(0), 2)
    assert seconds["slow"] >= 0.15
    assert seconds["quick"] < seconds["slow"]


def test_what_a_step_raises_is_raised_to_who_waits() -> None:
    def step() -> None:
        raise ValueError("of the step")

    with pytest.raises(ValueError, match="of the step"):
        interleave.InterleavedStep(step).run_step()


def test_the_pool_replays_in_the_thread_of_a_step(at_each_function: None) -> None:
    pool = NumpyPool()

    def step() -> None:
        with pool, pool.step():
            x = np.ones(10_000, np.float32)
            for _ in range(FUNCTIONS):
                x = F.relu(x).array

    step_in_thread = interleave.InterleavedStep(step)
    for _ in range(5):
        step_in_thread.run_step()
        pool.wait()
    before = pool.stats.replayed
    step_in_thread.run_step()
    assert pool.stats.replayed >= before + FUNCTIONS
