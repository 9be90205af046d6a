"""A plan in the form in which the replay core reads it."""

from __future__ import annotations

import numpy as np

from stowplan import Profile
from stowplan.allocator._core import Replay
from stowplan.allocator.core_plan import core_plan
from stowplan.planning import make_plan

BASE = 1 << 20


def test_an_empty_plan_is_followed() -> None:
    empty = np.empty(0, dtype=np.int64)
    core = Replay()
    assert core.begin_step(core_plan(make_plan(Profile(empty, empty, empty, period=0), alignment=64), 1))
    assert core.end_step()[2]


def test_planned_blocks_get_their_offsets_and_the_step_is_known_by_its_tag() -> None:
    profile = Profile(np.array([100, 300, 200]), np.array([0, 1, 3]), np.array([2, 4, 5]), period=6)
    plan = make_plan(profile, alignment=64)
    core = Replay(64)
    core.reserve(BASE, plan.arena_bytes)
    assert core.begin_step(core_plan(plan, 7))
    first, second = core.request(100), core.request(300)
    assert not core.release(first[1])  # it is not upstream's
    third = core.request(200)
    assert [address - BASE for address, _ in (first, second, third)] == plan.offset.tolist()
    core.release(second[1])
    core.release(third[1])
    assert core.end_step()[2:] == (True, 7)
