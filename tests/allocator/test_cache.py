"""The plans of a lane: which is expected, which is thrown out, and their form in the core."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from itertools import pairwise

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


def test_a_cache_without_plans_expects_none() -> None:
    cache = PlanCache(2)
    assert cache.likely("train")[0] is None
    assert (len(cache), cache.arena_bytes, cache.lower_bound) == (0, 0, 0)
    assert cache.get(1) is None


def test_plans_have_tags_of_their_own() -> None:
    cache = PlanCache(2)
    first, second = add(cache, None), add(cache, None)
    assert 0 not in (first.tag, second.tag)
    assert first.tag != second.tag
    assert cache.get(second.tag) is second
    assert first.revisions == 0


def test_what_was_used_last_comes_first() -> None:
    cache = PlanCache(3)
    a, b, c = add(cache, "x"), add(cache, "y"), add(cache, "x")
    assert tags(cache.plans()) == tags([c, b, a])
    cache.follow(a, in_full=True)
    assert tags(cache.plans()) == tags([a, c, b])
    assert tags(cache.variants("x")) == tags([a, c])


def test_the_least_recently_used_plan_goes_first() -> None:
    cache = PlanCache(2)
    a, b = add(cache, "x", 1000), add(cache, "y", 100)
    cache.follow(a, in_full=False)
    c = add(cache, "z", 10)
    assert tags(cache.plans()) == tags([c, a])
    assert cache.get(b.tag) is None
    assert cache.likely("y")[0] is None


def test_a_successor_takes_one_place_in_the_largest_arena() -> None:
    cache = PlanCache(2)
    a, b = add(cache, "x", 1000), add(cache, "y", 100)
    assert (cache.arena_bytes, cache.lower_bound) == (1024, 1024)
    successor = add(cache, "x", 500, replaces=a)
    assert tags(cache.plans()) == tags([successor, b])
    assert (cache.arena_bytes, cache.lower_bound) == (512, 512)


def test_a_plan_that_went_in_the_meantime_can_still_be_succeeded() -> None:
    cache = PlanCache(1)
    a = add(cache, "x")
    b = add(cache, "y")
    c = add(cache, "x", replaces=a)
    assert tags(cache.plans()) == [c.tag]
    assert cache.get(b.tag) is None


def test_expected_is_what_came_after_the_last_plan_before() -> None:
    cache = PlanCache(4)
    a, b = add(cache, None), add(cache, None)
    assert cache.likely(None)[0] is b.core
    for entry in (a, b, a, b, a):
        cache.follow(entry, in_full=True)
    assert cache.likely(None)[0] is b.core  # after a came b
    cache.follow(b, in_full=True)
    assert cache.likely(None)[0] is a.core


def test_of_another_key_the_variant_used_last_is_expected() -> None:
    cache = PlanCache(4)
    train, evaluate, other = add(cache, "train"), add(cache, "eval"), add(cache, "eval")
    for entry in (train, train, evaluate, train):
        cache.follow(entry, in_full=True)
    assert cache.likely("train")[0] is train.core
    assert cache.likely("eval")[0] is evaluate.core
    cache.follow(other, in_full=True)
    assert cache.likely("eval")[0] is other.core
    assert cache.likely("nothing")[0] is None


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


def test_a_step_replayed_in_full_ends_the_count_of_revisions() -> None:
    cache = PlanCache(4)
    plan = add(cache, None)
    plan.revisions = 2
    cache.follow(plan, in_full=False)
    assert plan.revisions == 2
    cache.follow(plan, in_full=True)
    assert plan.revisions == 0


def test_the_order_of_use_is_strict() -> None:
    cache = PlanCache(8)
    entries = [add(cache, None) for _ in range(6)]
    for entry in entries[::2]:
        cache.follow(entry, in_full=True)
    assert all(a.used > b.used for a, b in pairwise(cache.plans()))


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


def test_an_empty_plan_is_followed() -> None:
    empty = np.empty(0, dtype=np.int64)
    plan = make_plan(Profile(empty, empty, empty, period=0), alignment=64)
    core = Replay()
    assert core.begin_step(PlanCache(1).install(None, plan).core)
    assert core.end_step().clean


def test_planned_blocks_get_their_offsets_and_the_step_its_tag() -> None:
    profile = Profile(np.array([100, 300, 200]), np.array([0, 1, 3]), np.array([2, 4, 5]), period=6)
    installed = PlanCache(1).install(None, make_plan(profile, alignment=64))
    core = Replay(64)
    core.reserve(BASE, installed.plan.arena_bytes)
    assert core.begin_step(installed.core)
    first, second = core.request(100), core.request(300)
    assert not core.release(first[1])  # it is not upstream's
    third = core.request(200)
    offsets = [address - BASE for address, _ in (first, second, third)]
    assert offsets == installed.plan.offset.tolist()
    core.release(second[1])
    core.release(third[1])
    assert core.end_step()[2:] == (True, installed.tag)
