"""A step that may follow several plans, and one whose plan is given up."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan.allocator._core import CorePlan, PlanSet

from .bare_core import BareCore
from .test_replay import ARENA, ARENA_BYTES


def sizes_plan(tag: int, *sizes: int) -> CorePlan:
    """A plan whose blocks stand side by side and are freed at the end."""
    n = len(sizes)
    size = np.array(sizes, dtype=np.int64)
    offset = np.concatenate([[0], np.cumsum(size)[:-1]])
    due_begin = np.array([0] * (n + 1) + [n], dtype=np.int64)
    return CorePlan(
        offset, size, size, np.zeros(n, dtype=np.int64), due_begin, np.arange(n), int(size.sum()), tag
    )


@pytest.mark.parametrize(
    ("sizes", "tag"), [((1, 2, 3), 1), ((1, 2, 5, 8), 2), ((1, 2), 3), ((1, 2, 3, 4), 4), ((5, 5), 5)]
)
def test_a_step_follows_the_plan_that_it_turns_out_to_be(sizes: tuple[int, ...], tag: int) -> None:
    plans = [sizes_plan(1, 1, 2, 3), sizes_plan(2, 1, 2, 5, 8), sizes_plan(3, 1, 2)]
    plans += [sizes_plan(4, 1, 2, 3, 4), sizes_plan(5, 5, 5)]
    core = BareCore()
    core.place_arena(ARENA, ARENA_BYTES)
    for expected in plans:
        core.begin_step(expected, PlanSet(plans))
        blocks = [core.request(size) for size in sizes]
        assert all(address for address, _ in blocks)
        _, complete, clean, followed = core.end_step()
        assert (complete, clean, followed) == (False, True, tag)  # nobody wanted its log
        for _, block in blocks:
            core.release(block)


def test_plans_too_large_for_the_arena_are_left_out() -> None:
    core = BareCore()
    core.place_arena(ARENA, 8)
    core.begin_step(sizes_plan(1, 8, 8))
    core.request(8)
    assert core.counters()["requests"]["no_plan"] == core.counters()["guests"] == 1
    assert core.end_step()[3] == 0


# ------------------------------------------------------------------------------------------------------- giving up


def test_a_plan_that_does_not_fit_is_given_up_for_the_step() -> None:
    core = BareCore()
    core.place_arena(ARENA, 1 << 20)
    plan = sizes_plan(1, *([8] * 400))
    core.begin_step(plan)
    core.request(8)
    for _ in range(65):
        assert core.request(16)[0] != 0  # a guest
    replayed = core.counters()["requests"]["replayed"]
    for _ in range(100):
        address, _ = core.request(8)  # would fit the plan
        assert ARENA <= address < ARENA + (1 << 20)
    assert core.counters()["requests"]["replayed"] == replayed
    assert core.counters()["guests"] == 165
    core.end_step()
    core.begin_step(plan)
    assert core.request(8)[0] == 0 or core.counters()["requests"]["late"] > 0  # block 0 still lives there
    core.end_step()
