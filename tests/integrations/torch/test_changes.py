"""Programs that change things between steps: each step is plain PyTorch's to the bit, or refused, or counted as plain.

``STOWPLAN_SEQUENCES`` says how many sequences are drawn, and ``STOWPLAN_SEED`` the first one's seed.
"""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; expected: make torch-test")

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stowplan.errors import StowplanError
from stowplan.torch import ScheduledTraining, schedule

from .changes import CHANGES, Program

SEQUENCES = int(os.environ.get("STOWPLAN_SEQUENCES", "12"))
SEED = int(os.environ.get("STOWPLAN_SEED", "0"))
PARTS = 4
STEPS = 3


class World:
    """A program, with random numbers of its own, and how it is trained."""

    def __init__(self, seed: int, scheduled: bool) -> None:
        self.program = Program(seed)
        self.draw, self.torch = random.Random(seed), torch.get_rng_state()
        program = self.program
        self.training: ScheduledTraining | None = None
        if scheduled:
            self.training = schedule(
                program.model, program.optimizer, lambda model, *batch: program.loss(model, *batch)
            )

    def change(self, names: list[str]) -> tuple[Any, ...]:
        """Change these things; return a batch."""
        torch.set_rng_state(self.torch)
        for name in names:
            CHANGES[name](self.program, self.draw)
        batch = self.program.draw()
        self.torch = torch.get_rng_state()
        return batch

    def step(self, batch: tuple[Any, ...], *, plainly: bool) -> list[Any]:
        """Run a step; return its loss and all that it has left."""
        torch.set_rng_state(self.torch)
        program = self.program
        if plainly or self.training is None:
            loss = program.loss(program.model, *batch)
            loss.backward()
            program.optimizer.step()
            program.optimizer.zero_grad()
        else:
            loss = self.training.step(*batch)
        self.torch = torch.get_rng_state()
        given = [one.grad for one in pytree.tree_leaves(batch) if isinstance(one, Tensor) and one.is_leaf]
        return [loss.detach().clone(), given, program.state()]

    def left(self) -> list[Any]:
        """Return all that a step may change."""
        torch.set_rng_state(self.torch)
        return self.program.state()


def same(found: Any, expected: Any) -> bool:
    """Whether two trees of tensors are equal to the bit."""
    one, other = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    return len(one) == len(other) and all(
        a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num())
        if isinstance(a, Tensor)
        else a == b
        for a, b in zip(one, other, strict=True)
    )


def run(seed: int, steps: int = STEPS) -> Counter[str]:
    """Run a sequence in two worlds; return how its steps ran."""
    torch._dynamo.reset()
    draw = random.Random(seed)
    plain, scheduled = World(seed, scheduled=False), World(seed, scheduled=True)
    training = scheduled.training
    assert training is not None
    found: Counter[str] = Counter()
    names: list[str] = []
    try:
        for _ in range(steps):
            names.append(draw.choice(sorted(CHANGES)))
            batch, twin = plain.change(names[-1:]), scheduled.change(names[-1:])
            try:
                expected = plain.step(batch, plainly=True)
            except (RuntimeError, TypeError) as error:
                with pytest.raises((RuntimeError, TypeError, StowplanError)):
                    scheduled.step(twin, plainly=False)
                found[f"plain raises {type(error).__name__}"] += 1
                break
            before, count = scheduled.left(), training.plain_steps
            try:
                own = scheduled.step(twin, plainly=False)
            except StowplanError as error:
                assert same(scheduled.left(), before), (seed, names, "changed by a step that was refused")
                found[f"refused after {names[-1]}: {error}"] += 1
                own = scheduled.step(twin, plainly=True)
            else:
                found["plain" if training.plain_steps > count else "scheduled"] += 1
            assert same(own, expected), (seed, names)
            assert all(
                one.grad is None
                for group in scheduled.program.optimizer.param_groups
                for one in group["params"]
            )
    finally:
        for world in (plain, scheduled):
            for handle in world.program.handles:
                handle.remove()
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_no_step_differs(part: int) -> None:
    torch.set_num_threads(1)
    found: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(SEED + part, SEED + SEQUENCES, PARTS):
            found += run(seed)
    print(found)
    assert found["scheduled"] > 0


@pytest.mark.parametrize("seed", [5389, 5636])
def test_what_was_found_by_chance(seed: int) -> None:
    """An assertion of Dynamo's own came out as it was; a gradient that the step does not use was taken twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(seed).total() == STEPS


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_each_kind(name: str) -> None:
    torch.set_num_threads(1)
    torch._dynamo.reset()
    plain, scheduled = World(1, scheduled=False), World(1, scheduled=True)
    assert scheduled.training is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for names in ([], [name], []):
                batch, twin = plain.change(names), scheduled.change(names)
                expected = plain.step(batch, plainly=True)
                try:
                    own = scheduled.step(twin, plainly=False)
                except StowplanError as error:
                    print("refused:", error)
                    own = scheduled.step(twin, plainly=True)
                assert same(own, expected)
        finally:
            for world in (plain, scheduled):
                for handle in world.program.handles:
                    handle.remove()
    print(scheduled.training.plans, scheduled.training.plain_steps)


def test_there_are_forty_kinds() -> None:
    assert len(CHANGES) > 40
