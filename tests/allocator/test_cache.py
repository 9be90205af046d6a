"""The plans of a lane: which is expected, which is thrown out, and their form in the core."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from stowplan import Profile
from stowplan.allocator import make_plan
from stowplan.allocator._core import Replay
from stowplan.allocator.cache import Installed, PlanCache


def add(cache: PlanCache, key: Hashable, size: int = 64, *, replaces: Installed | None = None) -> Installed:
    """Plan a step of one block, and take the plan in."""
    profile = Profile(np.array([size]), np.array([0]), np.array([1]), period=2)
    entry = cache.install(key, make_plan(profile, alignment=64))
    cache.add(entry, replaces=replaces)
    return entry


def tags(entries: list[Installed]) -> list[int]:
    return [entry.tag for entry in entries]


def test_plans_have_tags_of_their_own() -> None:
    cache = PlanCache(2)
    first, second = add(cache, None), add(cache, None)
    assert 0 not in (first.tag, second.tag)
    assert first.tag != second.tag
    assert cache.get(second.tag) is second
    assert first.revisions == 0


def test_the_least_recently_used_plan_goes_first() -> None:
    cache = PlanCache(2)
    a, b = add(cache, "x", 1000), add(cache, "y", 100)
    cache.follow(a, in_full=False)
    c = add(cache, "z", 10)
    assert tags(cache.plans()) == tags([c, a])
    assert cache.get(b.tag) is None
    assert cache.likely("y")[0] is None


def test_an_expected_plan_that_has_gone_is_not_expected() -> None:
    cache = PlanCache(4)
    a, b = add(cache, None), add(cache, None)
    for entry in (a, b, a):
        cache.follow(entry, in_full=True)
    c = add(cache, None, replaces=b)
    assert cache.likely(None)[0] is c.core


def test_steps_may_follow_the_variants_of_their_key_only() -> None:
    """As the core sees it: a step without an expected plan finds the variant that has its first request."""
    cache = PlanCache(4)
    small, large, other = add(cache, "x", 100), add(cache, "x", 5000), add(cache, "y", 700)
    for size, tag in ((100, small.tag), (5000, large.tag), (700, 0)):
        core = Replay()
        core.reserve(1 << 20, cache.arena_bytes)
        assert core.begin_step(small.core, cache.likely("x")[1])
        address, block = core.request(size)
        if address == 0:
            core.adopt(block, 1 << 40)
        _, _, clean, followed = core.end_step()
        assert (clean, followed == tag) == (tag != 0, tag != 0)
    assert cache.likely("x")[1] is cache.likely("x")[1]  # made once
    kept = cache.likely("x")[1]
    cache.add(cache.install("y", other.plan))
    assert cache.likely("x")[1] is kept
    cache.add(cache.install("x", other.plan))
    assert cache.likely("x")[1] is not kept


def test_a_plan_placed_anew_is_expected_in_the_old_one_s_place() -> None:
    cache = PlanCache(4)
    a, b = add(cache, "x", 100), add(cache, "x", 200)
    for entry in (a, b, a, b, a):
        cache.follow(entry, in_full=True)
    successor = cache.install("x", replace(a.plan))  # the same step, placed anew
    cache.add(successor, replaces=a)
    add(cache, "x", 400)  # used last
    assert cache.likely("x")[0] is b.core
    cache.follow(b, in_full=True)
    assert cache.likely("x")[0] is successor.core
    cache.follow(successor, in_full=True)
    assert cache.likely("x")[0] is b.core


# ------------------------------------------------------------------------------------------------------- the core

BASE = 1 << 20
