"""Threads that run steps at once: each with places of its own, whoever frees its blocks."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from stowplan import Profile
from stowplan.errors import PoolError
from stowplan.planning import Plan, make_plan, plan_maker

from ..properties.cupy_backend import CupyBackend
from ..properties.numpy_backend import NumpyBackend
from ..properties.pool_program import Block
from ..running import in_threads

THREADS = 8
SIZES = (3000, 20_000, 1500, 9000)


@pytest.fixture(params=[NumpyBackend, CupyBackend])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    backend = request.param()
    yield backend
    assert backend.pool.wait()  # no plan of this test is made in the next one
    gc.collect()
    assert backend.pool.stats.live_bytes == 0


def test_eight_threads_run_steps_and_free_each_other_s_blocks(backend: Any) -> None:
    """Every byte written is read back, by whoever frees the block."""
    passed_on: list[Block] = []

    def work(number: int) -> None:
        choose = random.Random(number)
        for step in range(30):
            with backend.pool.step(f"thread {number}"):
                own = []
                for i, size in enumerate(SIZES):
                    own.append(Block(backend, size + number, (number * 31 + i) % 251))
                    if choose.random() < 0.2:
                        passed_on.append(own.pop())
                    if passed_on and choose.random() < 0.2:
                        assert passed_on.pop().holds()
                assert all(block.holds() for block in own)
                own.clear()
            if step < 4:
                backend.pool.wait()
            assert Block(backend, 2000, number).holds()

    in_threads(*(partial(work, number) for number in range(THREADS)))
    while passed_on:
        assert passed_on.pop().holds()
    assert backend.pool.stats.replayed > 0


def run_at_once(backend: Any, steps: int) -> list[set[int]]:
    """Run the same step in all threads, so that none takes the step slot of another.

    Return the addresses of each thread's blocks in the last step.
    """
    meet = threading.Barrier(THREADS)
    places: list[set[int]] = [set() for _ in range(THREADS)]

    def work(number: int) -> None:
        for _ in range(steps):
            places[number].clear()
            meet.wait(600)
            with backend.pool.step("the same"):
                meet.wait(600)  # now all are in their steps
                for size in SIZES:
                    block = Block(backend, size, number)
                    places[number].add(block.address)
                    assert block.holds()
                    del block
                meet.wait(600)
            backend.pool.wait()

    in_threads(*(partial(work, number) for number in range(THREADS)))
    return places


def test_steps_at_once_are_packed_once_and_replayed_each_in_its_own_arena(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[Profile] = []

    def counted(profile: Profile, **options: Any) -> Plan:
        packed.append(profile)
        return make_plan(profile, **options)

    monkeypatch.setattr(plan_maker, "make_plan", counted)
    places = run_at_once(backend, 8)
    stats = backend.pool.stats
    assert (stats.plans, len(packed)) == (THREADS, 1)
    assert stats.reasons == {"no_plan": 2 * THREADS * len(SIZES)}  # record and confirm
    assert stats.arena_bytes >= stats.lower_bound == THREADS * backend.pool.plan().placement.lower_bound
    assert all(not a & b for i, a in enumerate(places) for b in places[:i])


def test_a_step_is_one_thread_s(backend: Any) -> None:
    """Interruptions and nesting too: what one thread does is no other's business."""
    pool = backend.pool

    def elsewhere() -> None:
        with pool.interrupt():
            Block(backend, SIZES[0])
        with pool.step():
            pass

    for _ in range(6):
        with pool.step():
            with pytest.raises(PoolError, match="steps do not nest"), pool.step():
                pass
            kept = Block(backend, SIZES[1], 2)
            in_threads(elsewhere)
            assert kept.holds()
            del kept
        pool.wait()
    assert pool.stats.reasons == {"no_plan": 2, "thread": 6}


def test_a_step_may_end_on_another_thread(backend: Any) -> None:
    for _ in range(5):
        step = backend.pool.step()
        step.__enter__()
        in_threads(partial(step.__exit__, None, None, None))
    with backend.pool.step():
        pass
