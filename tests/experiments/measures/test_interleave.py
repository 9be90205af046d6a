"""Steps that run slice by slice, in turns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

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


def test_what_a_step_raises_is_raised_to_who_waits() -> None:
    def step() -> None:
        raise ValueError("of the step")

    with pytest.raises(ValueError, match="of the step"):
        interleave.InterleavedStep(step).run_step()
