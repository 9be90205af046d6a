"""Threads that run steps at once: each with places of its own, whoever frees its blocks."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool, NumpyPool, Profile
from stowplan.errors import PoolError
from stowplan.planning import Plan, make_plan, making

from ..running import in_threads
from .cupy_host import HostUpstream, address, cupy, fill, holds

THREADS = 8
SIZES = (3000, 20_000, 1500, 9000)


class NumpyArrays:
    def __init__(self) -> None:
        self.pool = NumpyPool(warmup=0)
        self.serving = self.pool.serving

    def make(self, size: int, byte: int) -> Any:
        return np.full(size, byte, np.uint8)

    def holds(self, array: Any, byte: int) -> bool:
        return bytes(array.data) == bytes([byte]) * array.size  # without a request of NumPy's

    def address(self, array: Any) -> int:
        return int(array.__array_interface__["data"][0])


class CupyArrays:
    def __init__(self) -> None:
        self.upstream = HostUpstream()
        self.pool = CupyPool(self.upstream, device=0, warmup=0)
        self.serving = self.pool.serving

    def make(self, size: int, byte: int) -> Any:
        return fill(cupy.empty(size, cupy.uint8), byte)

    def holds(self, array: Any, byte: int) -> bool:
        return holds(array, byte)

    def address(self, array: Any) -> int:
        return address(array)


@pytest.fixture(params=[NumpyArrays, CupyArrays])
def arrays(request: pytest.FixtureRequest) -> Iterator[Any]:
    arrays = request.param()
    yield arrays
    gc.collect()
    assert arrays.pool.stats.live_bytes == 0


def test_eight_threads_run_steps_and_free_each_other_s_blocks(arrays: Any) -> None:
    """Every byte written is read back, by whoever frees the block."""
    passed_on: list[tuple[Any, int]] = []

    def work(number: int) -> None:
        choose = random.Random(number)
        with arrays.serving():
            for step in range(30):
                with arrays.pool.step(f"thread {number}"):
                    own = []
                    for i, size in enumerate(SIZES):
                        own.append((arrays.make(size + number, byte := (number * 31 + i) % 251), byte))
                        if choose.random() < 0.2:
                            passed_on.append(own.pop())
                        if passed_on and choose.random() < 0.2:
                            array, byte = passed_on.pop()
                            assert arrays.holds(array, byte)
                            del array
                    assert all(arrays.holds(array, byte) for array, byte in own)
                    own.clear()
                if step < 4:
                    arrays.pool.wait()
                between = arrays.make(2000, number)
                assert arrays.holds(between, number)
                del between

    in_threads(*(partial(work, number) for number in range(THREADS)))
    while passed_on:
        array, byte = passed_on.pop()
        assert arrays.holds(array, byte)
        del array
    assert arrays.pool.stats.replayed > 0


def test_steps_at_once_are_replayed_each_in_its_own_arena(arrays: Any) -> None:
    places: list[set[int]] = [set() for _ in range(THREADS)]
    meet = threading.Barrier(THREADS)

    def work(number: int) -> None:
        with arrays.serving():
            for step in range(8):
                meet.wait(600)
                with arrays.pool.step():
                    meet.wait(600)  # now all are in their steps
                    for size in SIZES:
                        array = arrays.make(size, number)
                        if step > 5:
                            places[number].add(arrays.address(array))
                        assert arrays.holds(array, number)
                        del array
                    meet.wait(600)
                arrays.pool.wait()

    in_threads(*(partial(work, number) for number in range(THREADS)))
    stats = arrays.pool.stats
    assert stats.plans == THREADS
    assert stats.reasons == {"no_plan": 2 * THREADS * len(SIZES)}  # record and confirm
    assert stats.arena_bytes >= stats.lower_bound == THREADS * (arrays.pool.plan().placement.lower_bound)
    assert all(not a & b for i, a in enumerate(places) for b in places[:i])


def run_at_once(arrays: Any, steps: int) -> None:
    """Run the same step in all threads, so that none takes the step slot of another."""
    meet = threading.Barrier(THREADS)

    def work(number: int) -> None:
        with arrays.serving():
            for _ in range(steps):
                meet.wait(600)
                with arrays.pool.step("the same"):
                    meet.wait(600)
                    for size in SIZES:
                        assert arrays.holds(arrays.make(size, number), number)
                    meet.wait(600)
                arrays.pool.wait()

    in_threads(*(partial(work, number) for number in range(THREADS)))


def test_a_step_that_all_threads_run_is_packed_once(arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[Profile] = []

    def counted(profile: Profile, **options: Any) -> Plan:
        packed.append(profile)
        return make_plan(profile, **options)

    monkeypatch.setattr(making, "make_plan", counted)
    run_at_once(arrays, 5)
    assert arrays.pool.stats.plans == THREADS
    assert len(packed) == 1


def test_a_file_has_the_plans_of_all_threads(arrays: Any, tmp_path: Path) -> None:
    run_at_once(arrays, 5)
    arrays.pool.save(tmp_path / "program.plans")
    run_alone = type(arrays)()
    with run_alone.serving():
        for _ in range(4):
            with run_alone.pool.step("the same"):
                for size in SIZES:
                    run_alone.make(size, 0)
            run_alone.pool.wait()
    run_alone.pool.save(tmp_path / "alone.plans")
    # Threads add a line each, not a plan each.
    few, many = ((tmp_path / f"{name}.plans").stat().st_size for name in ("alone", "program"))
    assert few < many < 2 * few
    again = type(arrays)()
    options = {"warmup": 3} | ({"device": 0} if isinstance(again, CupyArrays) else {})
    upstream = [again.upstream] if isinstance(again, CupyArrays) else []
    again.pool = type(again.pool).load(tmp_path / "program.plans", *upstream, **options)
    again.serving = again.pool.serving
    run_at_once(again, 2)
    assert again.pool.stats.reasons == {}
    assert again.pool.stats.replayed == 2 * THREADS * len(SIZES)


def test_a_step_is_one_thread_s(arrays: Any) -> None:
    """Interruptions and nesting too: what one thread does is no other's business."""

    def elsewhere() -> None:
        with arrays.pool.interrupt(), arrays.serving():
            arrays.make(SIZES[0], 1)
        with arrays.pool.step():
            pass

    with arrays.serving():
        for _ in range(6):
            with arrays.pool.step():
                with pytest.raises(PoolError, match="steps do not nest"), arrays.pool.step():
                    pass
                kept = arrays.make(SIZES[1], 2)
                in_threads(elsewhere)
                assert arrays.holds(kept, 2)
                del kept
            arrays.pool.wait()
    assert arrays.pool.stats.reasons == {"no_plan": 2, "thread": 6}


def test_a_step_may_end_on_another_thread(arrays: Any) -> None:
    for _ in range(5):
        step = arrays.pool.step()
        step.__enter__()
        in_threads(partial(step.__exit__, None, None, None))
    with arrays.pool.step():
        pass
